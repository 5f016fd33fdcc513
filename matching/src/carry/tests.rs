//! Counts come from random walks over the graphs of compiled functions: consistent, and known to the last
//! one.

use super::*;
use crate::Options;
use crate::counts::score::score;
use crate::testing::{compile, thinned, walked};
use program::BlockEnd;

const SOURCE: &str = r#"
extern int puts(const char *);
extern void abort(void);
static int helper(int x) { if (x < 0) abort(); return x * 3; }
__attribute__((noinline)) int sum(const int *p, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) { if (p[i] > 7) s += helper(p[i]); else if (p[i] == 3) s--; EXTRA }
    return s;
}
__attribute__((noinline)) int pick(int x) {
    switch (x) {
        case 0: return 5; case 1: return 17; case 2: puts("two"); return 3; case 3: return 11;
        case 4: puts("four"); break; case 5: return -1; case 6: puts("six"); return 2; default: break;
    }
    return x ^ 1;
}
NEW
int entry(int n) { int a[] = {n, n + 1, 3, 9}; CALL return sum(a, 4) + pick(n); }
"#;

fn build(extra: &str, new: &str, call: &str) -> Program {
    let text = SOURCE.replace("EXTRA", extra).replace("NEW", new).replace("CALL", call);
    compile(&text, "c", &["-O2", "-shared", "-fPIC", "-nostartfiles", "-fvisibility=hidden"])
}

fn flow_is_conserved(program: &Program, profile: &Profile) {
    for f in program.func_ids() {
        for b in program.function(f).block_ids() {
            let at = program.block(b).start;
            let Some(&count) = profile.blocks.get(&at) else { continue };
            let out: u64 = profile.edges.iter().filter(|(e, _)| e.from == at).map(|(_, c)| c).sum();
            let calls = !program.calls_in(b).is_empty();
            let ends =
                matches!(program.block(b).end, BlockEnd::Branch | BlockEnd::FallThrough | BlockEnd::Switch);
            assert!(!ends || calls || out == count, "{at}: {count} in, {out} out");
        }
    }
}

#[test]
fn a_profile_carried_to_the_same_build_is_as_it_was() {
    let program = build("", "", "");
    let profile = walked(&program, 12345);
    let matching = Matching::compute(&program, &program, &Options::default());
    let carried = carry(&program, &program, &matching, &profile, &CarryOptions::default()).profile;
    let positive = |m: &profile::ByAddress| {
        m.iter().filter(|(_, c)| **c > 0).map(|(&k, &c)| (k, c)).collect::<Vec<(Va, u64)>>()
    };
    assert_eq!(positive(&carried.blocks), positive(&profile.blocks));
    assert_eq!(positive(&carried.entries), positive(&profile.entries));
    let edges: BTreeMap<_, _> =
        carried.edges.iter().filter(|(_, c)| **c > 0).map(|(&e, &c)| (e, c)).collect();
    assert_eq!(edges, profile.edges);
    let s = score(&program, &carried, &profile);
    assert!(
        s.bp_share == 1.0 && s.cc_share == 1.0 && s.overlap_share > 0.999_999 && s.losses.is_empty(),
        "{s:?}"
    );
}

#[test]
fn a_changed_build_gets_a_flow_and_its_new_function_is_entered() {
    let old = build("", "", "");
    let new = build(
        "if (p[i] == 100) puts(\"hundred\");",
        "__attribute__((noinline)) int fresh(int n) { while (n > 3) { puts(\"f\"); n -= 2; } return n; }",
        "n += fresh(n);",
    );
    let profile = walked(&old, 12345);
    let matching = Matching::compute(&old, &new, &Options::default());
    let carried = carry(&old, &new, &matching, &profile, &CarryOptions::default());
    flow_is_conserved(&new, &carried.profile);
    let find = |name: &str| new.function(crate::testing::function(&new, name)).entry;
    assert_eq!(carried.profile.entries.get(&find("fresh")), Some(&400));
    assert_eq!(carried.report.n_new_functions, 1);
    assert_eq!(carried.profile.entries.get(&find("sum")), Some(&400));
    assert!(carried.report.carried_count > 0 && carried.report.old_count >= carried.report.carried_count);
}

#[test]
fn a_blind_profile_predicts_all_branches_taken() {
    let program = build("", "", "");
    let fresh = walked(&program, 12345);
    let s = score(&program, &Profile::default(), &fresh);
    let (mut taken, mut right) = (0, 0);
    for b in (0..program.blocks.len()).map(BlockId::at).filter(|&b| program.block(b).end == BlockEnd::Branch)
    {
        let count = |kind| {
            let e = program.successors(b).iter().find(|e| e.kind == kind)?;
            let at = EdgeAt { from: program.block(e.from).start, to: program.block(e.to).start };
            Some(fresh.edges.get(&at).copied().unwrap_or(0))
        };
        let (Some(t), Some(n)) = (count(program::EdgeKind::Taken), count(program::EdgeKind::FallThrough))
        else {
            continue;
        };
        taken += t;
        right += t.max(n);
    }
    assert!(right > taken && taken > 0);
    assert!((s.bp_share - taken as f64 / right as f64).abs() < 1e-12, "{s:?}");
    assert_eq!(s.n_covered, 0);
    assert_eq!(s.n_executed[1], 0);
}

#[test]
fn of_a_function_that_was_only_entered_nothing_else_is_carried() {
    let program = build("", "", "");
    let sum = crate::testing::function(&program, "sum");
    let entry = program.function(sum).entry;
    let mut profile = walked(&program, 12345);
    let inside = |at: Va| program.function_at(at) == Some(sum);
    profile.edges.retain(|e, _| !inside(e.from));
    profile.blocks.retain(|&at, _| !inside(at) || at == entry);
    profile.calls.retain(|&(at, _), _| !inside(at));
    profile.exactness = Exactness::Exact;
    let matching = Matching::compute(&program, &program, &Options::default());
    let carried = carry(&program, &program, &matching, &profile, &CarryOptions::default()).profile;
    assert_eq!(carried.entries.get(&entry), Some(&400));
    assert!(carried.edges.iter().all(|(e, &count)| !inside(e.from) || count == 0));
    assert!(carried.blocks.iter().all(|(&at, &count)| !inside(at) || at == entry || count == 0));
}

#[test]
fn new_code_that_calls_what_never_ran_is_taken_not_to_run() {
    let never = "__attribute__((noinline)) int never(int x) { puts(\"never\"); return x + 3; }
        int caller(int x) { if (x == 77) return never(x); if (x == 78) return never(x + 1); if (x > 90) return never(2); return x; }";
    let old = build("", never, "n += caller(n);");
    let new = build("", never, "n += caller(n); if (n * 3 == 1234567) n = never(n);");
    let mut profile = walked(&old, 12345);
    let (f, caller) = (crate::testing::function(&old, "never"), crate::testing::function(&old, "caller"));
    // As if no way had led there.
    let dead: Vec<Va> = old
        .calls
        .iter()
        .filter(|c| c.callee == Callee::Function(f) && old.block(c.block).func == caller)
        .map(|c| old.block(c.block).start)
        .chain([old.function(f).entry])
        .collect();
    profile.blocks.retain(|at, _| !dead.contains(at));
    profile.edges.retain(|e, _| !dead.contains(&e.to) && !dead.contains(&e.from));
    profile.entries.retain(|at, _| !dead.contains(at));
    profile.calls.retain(|(_, to), _| !dead.contains(to));
    let matching = Matching::compute(&old, &new, &Options::default());
    let carried = carry(&old, &new, &matching, &profile, &CarryOptions::default()).profile;
    let entered = |name: &str| {
        let entry = new.function(crate::testing::function(&new, name)).entry;
        carried.entries.get(&entry).copied().unwrap_or(0)
    };
    assert!(entered("entry") > 0);
    assert_eq!(entered("never"), 0);
}

#[test]
fn samples_cover_the_blocks_that_they_saw() {
    let program = build("", "", "");
    let truth = walked(&program, 12345);
    let samples = thinned(&program, &truth, 200);
    let ran = |p: &Profile, b: &program::Block| p.blocks.get(&b.start).is_some_and(|&c| c > 0);
    let code = program.blocks.iter().filter(|b| program.function(b.func).origin != Origin::Plt);
    let (mut n, mut agree) = (0, 0);
    for b in code {
        n += 1;
        agree += usize::from(ran(&samples, b) == ran(&truth, b));
    }
    let s = score(&program, &samples, &truth);
    assert_eq!(s.n_blocks, n);
    assert!(agree < n && (s.cc_share - agree as f64 / n as f64).abs() < 1e-12, "{agree} of {n}: {s:?}");
    assert!(s.overlap_share > 0.5 && s.overlap_share < 1.0 && s.bp_share <= 1.0, "{s:?}");
}

#[test]
fn an_exact_profile_is_predicted_and_one_with_holes_is_not() {
    let program = build("", "", "");
    let matching = Matching::compute(&program, &program, &Options::default());
    let predicted = |profile: &Profile| {
        carry(&program, &program, &matching, profile, &CarryOptions::default()).report.predicted
    };
    let mut profile = walked(&program, 12345);
    profile.exactness = Exactness::Exact;
    let whole = predicted(&profile);
    assert!(whole.is_same && whole.doubts.is_empty(), "{whole:?}");
    assert_eq!([whole.bp, whole.cc].map(|e| (e.share, e.at_least)), [(Some(1.0), Some(1.0)); 2], "{whole:?}");
    let sum = crate::testing::function(&program, "sum");
    let inside = |at: Va| program.function_at(at) == Some(sum);
    profile.edges.retain(|e, _| !inside(e.from));
    profile.blocks.retain(|&at, _| !inside(at));
    profile.entries.retain(|&at, _| !inside(at));
    let holes = predicted(&profile);
    assert!(holes.bp.share.is_none() && holes.cc.share.is_none(), "{holes:?}");
    assert!(matches!(holes.doubts[..], [Doubt::NotInside { n_functions: 1, .. }]), "{holes:?}");
}

#[test]
fn counts_too_large_to_be_summed_are_carried_as_smaller_ones() {
    let (old, new) = (build("", "", ""), build("if (p[i] == 100) puts(\"hundred\");", "", ""));
    let matching = Matching::compute(&old, &new, &Options::default());
    let carried = |p: &Profile| carry(&old, &new, &matching, p, &CarryOptions::default()).profile;
    let profile = walked(&old, 12345);
    let mut large = profile.clone();
    large.scale(f64::MAX);
    assert!(large.edges.values().any(|&n| n == u64::MAX));
    // All that ran is the largest number there is, which is no flow; what comes of it is one.
    let got = carried(&large);
    flow_is_conserved(&new, &got);
    let n_ran = |p: &Profile| p.blocks.values().filter(|n| **n > 0).count();
    assert!(n_ran(&got) + 2 > n_ran(&carried(&profile)), "{} blocks", n_ran(&got));
    // In the same ratios, they come out in the same ratios.
    let mut times = profile.clone();
    times.scale((1_u64 << 50) as f64);
    let overlap = carried(&times).overlap(&carried(&profile));
    assert!(overlap > 0.999, "{overlap}");
}

/// Calls through slots, an indirect call, and a branch; with `EXTRA` a second indirect call.
const CALLING: &str = r#"
extern int puts(const char *);
int (*hook)(int);
__attribute__((noinline)) int twice(int n) { puts("twice"); return n * 2; }
int entry(int n) { int s = 0; for (int i = 0; i < n; i++) { if (i & 4) s += twice(i); s ^= hook(s); EXTRA } return s; }
"#;

fn calling(extra: &str) -> Program {
    let flags = ["-O2", "-shared", "-fPIC", "-fno-plt", "-nostartfiles", "-fvisibility=hidden"];
    compile(&CALLING.replace("EXTRA", extra), "c", &flags)
}

/// The instruction that makes the only call of this kind.
fn call_at(program: &Program, is: impl Fn(&Callee) -> bool) -> Va {
    let calls: Vec<Va> = program.calls.iter().filter(|c| is(&c.callee)).map(|c| c.at).collect();
    let [at] = calls.as_slice() else { panic!("{calls:?}") };
    *at
}

/// A walk in which the calls through the pointer went to `twice` a third of the times, and every fourth
/// branch was mispredicted.
fn called(program: &Program) -> Profile {
    let mut profile = walked(program, 7);
    let hook = call_at(program, |c| matches!(c, Callee::Indirect));
    let times = profile.blocks[&program.block(program.block_at(hook).expect("its block")).start];
    assert!(times > 30, "{times}");
    let twice = program.function(crate::testing::function(program, "twice")).entry;
    profile.calls.insert((hook, twice), times / 3);
    profile.calls_out.insert(hook, times - times / 3);
    profile.mispredicts = profile.edges.iter().map(|(&e, &n)| (e, n / 4)).filter(|(_, n)| *n > 0).collect();
    profile
}

#[test]
fn calls_through_slots_and_pointers_and_mispredictions_are_carried() {
    let (old, new) = (calling(""), calling("if (s == 77) s++;"));
    let profile = called(&old);
    let matching = Matching::compute(&old, &new, &Options::default());
    let got = carry(&old, &new, &matching, &profile, &CarryOptions::default()).profile;
    let slot = call_at(&new, |c| matches!(c, Callee::Import(_)));
    let hook = call_at(&new, |c| matches!(c, Callee::Indirect));
    let times = |at| got.blocks[&new.block(new.block_at(at).expect("its block")).start];
    assert_eq!(got.calls_out[&slot], times(slot));
    let twice = new.function(crate::testing::function(&new, "twice")).entry;
    assert_eq!((got.calls_out[&hook], got.calls[&(hook, twice)]), {
        let all = times(hook);
        (all - all / 3, all / 3)
    });
    let sum = |p: &Profile| p.mispredicts.values().sum::<u64>();
    assert!(sum(&got) > sum(&profile) / 2 && sum(&got) <= sum(&profile), "{}", sum(&got));
    assert!(got.mispredicts.iter().all(|(e, n)| *n <= got.edges[e]));
    let own = Matching::compute(&old, &old, &Options::default());
    let same = carry(&old, &old, &own, &profile, &CarryOptions::default());
    assert_eq!((same.profile.mispredicts, same.report.losses), (profile.mispredicts, vec![]));
}

#[test]
fn calls_that_have_no_counterpart_are_among_the_losses() {
    let (old, new) = (calling(""), calling("s ^= hook(s + 1);"));
    let profile = called(&old);
    let matching = Matching::compute(&old, &new, &Options::default());
    let report = carry(&old, &new, &matching, &profile, &CarryOptions::default()).report;
    let lost: Vec<_> = report.losses.iter().filter(|l| l.reason == LossReason::CallUnmatched).collect();
    let hook = call_at(&old, |c| matches!(c, Callee::Indirect));
    let want = profile.blocks[&old.block(old.block_at(hook).expect("its block")).start];
    let told: Vec<_> = lost.iter().map(|l| (l.n_blocks, l.count)).collect();
    assert_eq!(told, [(2, want)], "{:?}", report.losses);
}

/// Something is expected to be lost, and less is promised than expected.
#[test]
fn of_a_changed_build_a_bound_is_promised_below_what_is_expected() {
    let (old, new) = (build("", "", ""), build("if (p[i] == 100) puts(\"hundred\");", "", ""));
    let mut profile = walked(&old, 12345);
    profile.exactness = Exactness::Exact;
    let matching = Matching::compute(&old, &new, &Options::default());
    let said = carry(&old, &new, &matching, &profile, &CarryOptions::default()).report.predicted;
    assert!(!said.is_same, "{said:?}");
    for e in [said.bp, said.cc] {
        let (share, at_least) = (e.share.expect("they are alike"), e.at_least.expect("so is the bound"));
        assert!(at_least < share && share < 1.0 && at_least > 0.0, "{said:?}");
    }
}

/// A profile in which nothing ran says nothing, of the same build either.
#[test]
fn nothing_is_predicted_of_nothing() {
    let program = build("", "", "");
    let matching = Matching::compute(&program, &program, &Options::default());
    let none = Profile { exactness: Exactness::Exact, ..Profile::default() };
    let said = carry(&program, &program, &matching, &none, &CarryOptions::default()).report.predicted;
    assert_eq!([said.bp.share, said.cc.share, said.bp.at_least, said.cc.at_least], [None; 4], "{said:?}");
}

/// Built without optimisation and with it, or of other sources: the prices are of no such pair.
#[test]
fn nothing_is_predicted_of_builds_that_are_unlike() {
    let flags = |level| [level, "-shared", "-fPIC", "-nostartfiles", "-fvisibility=hidden"];
    let text = |extra| SOURCE.replace("EXTRA", extra).replace("NEW", "").replace("CALL", "");
    let other = "extern int puts(const char *); int entry(int n) { int s = 0; for (int i = 0; i < n; i++) \
                 for (int k = i; k < n; k += 2) { if ((i ^ k) & 1) s += k; else puts(\"even\"); } return s; }";
    let old = build("", "", "");
    let profile = walked(&old, 12345);
    let check = |new: &Program, want: bool| {
        let matching = Matching::compute(&old, new, &Options::default());
        let predicted = carry(&old, new, &matching, &profile, &CarryOptions::default()).report.predicted;
        let unlike = predicted.doubts.iter().any(|d| matches!(d, Doubt::Unlike { .. }));
        let [bp, cc] = [predicted.bp.share, predicted.cc.share].map(|share| share.is_some());
        assert_eq!((bp, cc, unlike), (want, want, !want), "{predicted:?}");
    };
    check(&build("", "", ""), true);
    check(&compile(&text("if (p[i] == 100) puts(\"hundred\");"), "c", &flags("-O2")), true);
    check(&compile(&text(""), "c", &flags("-O0")), false);
    check(&compile(other, "c", &flags("-O2")), false);
}

/// Who knows nothing loses one half of the branches at most: so no samples can cost more.
#[test]
fn few_samples_cost_no_more_than_knowing_nothing() {
    let program = build("", "", "");
    let whole = walked(&program, 12345);
    let matching = Matching::compute(&program, &program, &Options::default());
    for nth in [3, 30, 300] {
        let mut samples = thinned(&program, &whole, nth);
        // Of instructions: counts of blocks alone.
        (samples.edges, samples.entries) = (BTreeMap::new(), profile::ByAddress::default());
        let carried = carry(&program, &program, &matching, &samples, &CarryOptions::default());
        for doubt in carried.report.predicted.doubts {
            let Doubt::Sampled { bp_share, .. } = doubt else { continue };
            assert!((0.0..=0.5).contains(&bp_share), "1 of {nth}: {bp_share}");
        }
    }
}

#[test]
fn what_is_in_no_loop_does_not_run_more_often_than_it_was_called() {
    let p = build("", "", "");
    let profile = walked(&p, 4711);
    let sum = crate::testing::function(&p, "sum");
    let loops = program::Loops::compute(&p, sum);
    let ran = |b: &BlockId| profile.blocks.get(&p.block(*b).start).copied().unwrap_or(0);
    let entered = profile.entries[&p.function(sum).entry];
    let hot = p.function(sum).block_ids().max_by_key(ran).expect("blocks");
    assert!(ran(&hot) > 2 * entered && loops.block_depth(hot) > 0);
    // Wrongly matched: what leaves the function, to what is in its loop.
    let last = p.function(sum).block_ids().filter(|b| p.successors(*b).is_empty() && ran(b) > 0);
    let last = last.min_by_key(|&b| loops.block_depth(b)).expect("a way out");
    let mut matching = Matching::compute(&p, &p, &Options::default());
    for m in matching.blocks.iter_mut().filter(|m| m.new == last) {
        m.old = hot;
    }
    let carried = carry(&p, &p, &matching, &profile, &CarryOptions::default()).profile;
    assert!(carried.blocks[&p.block(last).start] <= entered);
    assert_eq!(carried.entries[&p.function(sum).entry], entered);
}

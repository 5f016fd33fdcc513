//! Code that stands in for functions, run in this process.
#![expect(clippy::undocumented_unsafe_blocks, reason = "code that the test has made is called as what it is")]

use super::*;
use crate::arch::x86_64::testing::{alone, map, read, unmap, write};
use crate::graft::{Graft, Meaning};
use nix::libc;
use program::LiveVa;
use std::arch::asm;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// `made`, where it may run, with what its slots lead to; and where its data are.
struct Placed {
    at: u64,
    len: u64,
    data: u64,
}

impl Placed {
    fn new(made: &StandIn, leads: &[(&str, u64)]) -> Placed {
        let graft = Graft::of_stand_in("made", made);
        let len = graft.len_bytes();
        let at = map(0, len, libc::MAP_PRIVATE);
        let meaning = |name: &crate::graft::Name| {
            let found = leads.iter().find(|one| one.0 == &*name.name).expect("a slot that is known");
            Ok(Meaning::At(LiveVa(found.1)))
        };
        let grafted = graft.place(LiveVa(at), meaning).expect("all is known");
        for part in &grafted.parts {
            for (n, byte) in part.bytes.iter().enumerate() {
                write(part.at + n as u64, *byte);
            }
        }
        Placed { at, len, data: at + graft.data() }
    }

    fn real(&self) -> extern "C" fn(f64) -> f64 {
        unsafe { std::mem::transmute::<u64, extern "C" fn(f64) -> f64>(self.at) }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        unmap(self.at, self.len);
    }
}

fn mxcsr() -> u32 {
    let mut value = 0u32;
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut value) };
    value
}

fn set_mxcsr(value: u32) {
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value) };
}

/// How far errno is from where the thread pointer leads.
fn errno_at() -> i32 {
    let pointer: u64;
    unsafe { asm!("mov {}, fs:[0]", out(reg) pointer) };
    let at = unsafe { libc::__errno_location() } as u64;
    i32::try_from(at.wrapping_sub(pointer).cast_signed()).expect("near")
}

const F64: Word = Word::vector(0, 8);

fn real() -> Words {
    Words { arguments: vec![F64], results: vec![F64] }
}

static N_CALLS: AtomicU64 = AtomicU64::new(0);

/// Raises what it is asked for, and sets errno below zero, as `log` does.
extern "C" fn logarithm(x: f64) -> f64 {
    N_CALLS.fetch_add(1, Ordering::Relaxed);
    if x < 0.0 {
        nix::errno::Errno::EDOM.set();
    }
    black_box(x).ln()
}

fn n_calls() -> u64 {
    N_CALLS.load(Ordering::Relaxed)
}

fn errno() -> i32 {
    nix::errno::Errno::last_raw()
}

#[test]
fn a_table_gives_what_the_function_gave_with_flags_and_errno() {
    let _alone = alone();
    let before = mxcsr();
    let made = memo(&real(), 64, Changes::State(Some(errno_at()))).expect("it can be written");
    let placed = Placed::new(&made, &[(ORIGINAL, logarithm as *const () as u64)]);
    let f = placed.real();
    // What is all zeros is in no entry that is empty.
    for x in [0.0f64, 1.0, 2.0, -1.0, f64::INFINITY, 1e-310, 3.5] {
        let plain = |f: extern "C" fn(f64) -> f64| {
            set_mxcsr(DEFAULT.cast_unsigned());
            nix::errno::Errno::set_raw(7);
            let got = black_box(f)(x).to_bits();
            (got, mxcsr(), errno())
        };
        let want = plain(logarithm);
        let from = n_calls();
        assert_eq!(plain(f), want, "{x}, first");
        assert_eq!(n_calls(), from + 1);
        for _ in 0..3 {
            assert_eq!(plain(f), want, "{x}, again");
        }
        assert_eq!(n_calls(), from + 1, "{x} was not remembered");
        // Flags that are raised stay so.
        set_mxcsr(0x1fbf);
        assert_eq!((f(x).to_bits(), mxcsr()), (want.0, 0x1fbf));
        // Rounded upwards it is another result.
        set_mxcsr(0x5f80);
        f(x);
        assert_eq!((n_calls(), mxcsr() & 0xffc0), (from + 2, 0x5f80), "{x}");
        // Rounded as before, it is no longer there, and comes back.
        assert_eq!(plain(f), want, "{x}, at last");
        assert_eq!(n_calls(), from + 3);
    }
    // Where exceptions are raised, it keeps out of the way: 2 was remembered last as one that raises none.
    set_mxcsr(DEFAULT.cast_unsigned());
    f(1.0);
    let from = n_calls();
    set_mxcsr(0x1f80 & !0x400);
    f(1.0);
    f(1.0);
    assert_eq!(n_calls(), from + 2);
    set_mxcsr(before);
}

extern "C" fn mixed(a: i32, x: f32, b: u64, y: f64) -> u64 {
    N_CALLS.fetch_add(1, Ordering::Relaxed);
    (a as u64).rotate_left(7) ^ b ^ u64::from(x.to_bits()) ^ y.to_bits()
}

#[test]
fn a_table_tells_all_words_apart_and_no_more() {
    let _alone = alone();
    let arguments = vec![Word::general(7, 4), Word::vector(0, 4), Word::general(6, 8), Word::vector(1, 8)];
    let words = Words { arguments, results: vec![Word::general(0, 8)] };
    let made = memo(&words, 4096, Changes::Nothing).expect("it can be written");
    let placed = Placed::new(&made, &[(ORIGINAL, mixed as *const () as u64)]);
    let f = unsafe { std::mem::transmute::<u64, extern "C" fn(u64, u64, f64, f64) -> u64>(placed.at) };
    // What stands above what they take is not theirs.
    let wide = |x: f32, above: u64| f64::from_bits(u64::from(x.to_bits()) | above << 32);
    let from = n_calls();
    let mut n_different = 0;
    for a in [0i32, -1, 5] {
        for x in [0.0f32, 1.5] {
            for b in [0u64, 1 << 40] {
                for y in [0.0f64, -0.0, 2.0] {
                    n_different += 1;
                    for above in [0u64, 0xffff_ffff, 77] {
                        let di = u64::from(a.cast_unsigned()) | above << 32;
                        assert_eq!(f(di, b, wide(x, above), y), mixed_plain(a, x, b, y));
                    }
                }
            }
        }
    }
    assert_eq!(n_calls(), from + n_different);
}

fn mixed_plain(a: i32, x: f32, b: u64, y: f64) -> u64 {
    (a as u64).rotate_left(7) ^ b ^ u64::from(x.to_bits()) ^ y.to_bits()
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Two(u64, f64);
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Reals(f64, f64);

extern "C" fn two(a: u64) -> Two {
    N_CALLS.fetch_add(1, Ordering::Relaxed);
    Two(a * 3, a as f64 / 2.0)
}

extern "C" fn reals(a: f64) -> Reals {
    N_CALLS.fetch_add(1, Ordering::Relaxed);
    Reals(a / 3.0, -a)
}

#[test]
fn results_of_two_words_come_back_in_their_registers() {
    let _alone = alone();
    let argument = Word::general(7, 8);
    let words = Words { arguments: vec![argument], results: vec![Word::general(0, 8), F64] };
    let made = memo(&words, 1, Changes::State(None)).expect("it can be written");
    let placed = Placed::new(&made, &[(ORIGINAL, two as *const () as u64)]);
    let f = unsafe { std::mem::transmute::<u64, extern "C" fn(u64) -> Two>(placed.at) };
    let from = n_calls();
    for a in [0u64, 9, 9, 9, 0] {
        assert_eq!(f(a), Two(a * 3, a as f64 / 2.0));
    }
    assert_eq!(n_calls(), from + 3);
    let words = Words { arguments: vec![F64], results: vec![F64, Word::vector(1, 8)] };
    let made = memo(&words, 16, Changes::Nothing).expect("it can be written");
    let placed = Placed::new(&made, &[(ORIGINAL, reals as *const () as u64)]);
    let f = unsafe { std::mem::transmute::<u64, extern "C" fn(f64) -> Reals>(placed.at) };
    let from = n_calls();
    for a in [1.0, 1.0, 7.0, 7.0] {
        assert_eq!(f(a), Reals(a / 3.0, -a));
    }
    assert_eq!(n_calls(), from + 2);
}

#[test]
fn threads_that_write_one_entry_never_read_a_mixture() {
    let _alone = alone();
    let made = memo(&real(), 1, Changes::State(Some(errno_at()))).expect("it can be written");
    extern "C" fn twice(x: f64) -> f64 {
        x * 2.0 + 1.0
    }
    let placed = Placed::new(&made, &[(ORIGINAL, twice as *const () as u64)]);
    let f = placed.real();
    std::thread::scope(|scope| {
        for from in 0..4u64 {
            scope.spawn(move || {
                for n in 0..300_000u64 {
                    let x = ((n / 3 + from * 7) % 5) as f64;
                    assert_eq!(f(x).to_bits(), twice(x).to_bits(), "{x}");
                }
            });
        }
    });
}

#[test]
fn a_known_result_is_given_for_its_arguments_alone() {
    let _alone = alone();
    let before = mxcsr();
    for (x, errno_set) in [(2.0f64, None), (-1.0, Some(libc::EDOM.cast_unsigned()))] {
        set_mxcsr(DEFAULT.cast_unsigned());
        let result = black_box(logarithm as extern "C" fn(f64) -> f64)(x).to_bits();
        let known = Known {
            arguments: vec![x.to_bits()],
            results: vec![result],
            raised: mxcsr() & 0x3f,
            errno: errno_set.map(|value| (errno_at(), value)),
            counts: Counts::Default,
        };
        assert_ne!(known.raised, 0);
        let made = constant(&real(), &known).expect("it can be written");
        let placed = Placed::new(&made, &[(ORIGINAL, logarithm as *const () as u64)]);
        let f = placed.real();
        for x in [x, x, 3.0, 0.5, x] {
            let all = |f: extern "C" fn(f64) -> f64| {
                set_mxcsr(DEFAULT.cast_unsigned());
                nix::errno::Errno::set_raw(7);
                (black_box(f)(x).to_bits(), mxcsr(), errno())
            };
            let want = all(logarithm);
            let from = n_calls();
            assert_eq!(all(f), want, "{x}");
            assert_eq!(n_calls() == from, x.to_bits() == known.arguments[0], "{x}");
        }
        set_mxcsr(0x5f80);
        let from = n_calls();
        f(x);
        assert_eq!(n_calls(), from + 1, "rounded upwards, it is another result");
    }
    set_mxcsr(before);
}

/// 1 + 2⁻⁵⁴: another result in each mode of rounding but two, and inexact in all.
extern "C" fn rounded(x: f64) -> f64 {
    N_CALLS.fetch_add(1, Ordering::Relaxed);
    black_box(x) + black_box(0.25 * f64::EPSILON)
}

/// 2: the same in all modes.
extern "C" fn exact(x: f64) -> f64 {
    N_CALLS.fetch_add(1, Ordering::Relaxed);
    black_box(x) + black_box(1.0)
}

#[test]
fn a_known_result_counts_in_the_modes_for_which_it_is_said() {
    let _alone = alone();
    let before = mxcsr();
    let all = |f: extern "C" fn(f64) -> f64, mode: u32| {
        set_mxcsr(mode);
        let result = black_box(f)(1.0).to_bits();
        let raised = mxcsr();
        set_mxcsr(before);
        (result, raised)
    };
    let functions: [extern "C" fn(f64) -> f64; 2] = [rounded, exact];
    for function in functions {
        let (result, raised) = all(function, mxcsr::DEFAULT);
        let is_same = |mode: &u32| {
            let (other, flags) = all(function, *mode);
            other == result && flags & mxcsr::FLAGS == raised & mxcsr::FLAGS
        };
        let counts = match mxcsr::modes().all(|mode| is_same(&mode)) {
            true => Counts::Always,
            false => Counts::Nearest,
        };
        assert!(mxcsr::modes().filter(|mode| mxcsr::is_nearest(*mode)).all(|mode| is_same(&mode)));
        assert_eq!(
            counts == Counts::Always,
            std::ptr::fn_addr_eq(function, exact as extern "C" fn(f64) -> f64)
        );
        let known = Known {
            arguments: vec![1.0f64.to_bits()],
            results: vec![result],
            raised: raised & mxcsr::FLAGS,
            errno: None,
            counts,
        };
        let made = constant(&real(), &known).expect("it can be written");
        let placed = Placed::new(&made, &[(ORIGINAL, function as *const () as u64)]);
        for mode in mxcsr::modes() {
            let want = all(function, mode);
            let from = n_calls();
            assert_eq!(all(placed.real(), mode), want, "{mode:#x}");
            let is_known = counts == Counts::Always || mxcsr::is_nearest(mode);
            assert_eq!(n_calls() == from, is_known, "{mode:#x}");
        }
    }
}

#[test]
fn asking_how_numbers_are_rounded_changes_no_register() {
    let _alone = alone();
    let known = Known {
        arguments: vec![1.0f64.to_bits()],
        results: vec![7],
        raised: mxcsr::INEXACT,
        errno: None,
        counts: Counts::Nearest,
    };
    let made = constant(&real(), &known).expect("it can be written");
    let placed = Placed::new(&made, &[(ORIGINAL, exact as *const () as u64)]);
    let (mut result, mut last) = (1.0f64.to_bits(), 0x0123_4567_89ab_cdef_u64);
    unsafe {
        asm!(
            "movq xmm0, rax", "movq xmm15, rcx", "call rdx", "movq rax, xmm0", "movq rcx, xmm15",
            inout("rax") result, inout("rcx") last, in("rdx") placed.at, clobber_abi("C"),
        );
    }
    assert_eq!((result, last), (7, 0x0123_4567_89ab_cdef));
}

/// The bytes of `T` at `at`.
fn bytes<const N: usize>(at: u64) -> [u8; N] {
    read::<[u8; N]>(at)
}

#[test]
fn a_trial_records_and_takes_turns() {
    let _alone = alone();
    extern "C" fn old(a: u64, x: f64) -> f64 {
        a as f64 + x
    }
    extern "C" fn new(a: u64, x: f64) -> f64 {
        a as f64 - x
    }
    let made = trial().expect("it can be written");
    let leads = [(ORIGINAL, old as *const () as u64), (REPLACEMENT, new as *const () as u64)];
    let placed = Placed::new(&made, &leads);
    let f = unsafe { std::mem::transmute::<u64, extern "C" fn(u64, f64) -> f64>(placed.at) };
    let state = || Trial::of_bytes(&bytes(placed.data));
    let what = |what: u64| write(placed.data, what);
    assert_eq!(f(1, 2.0), 3.0);
    assert_eq!(state(), Trial::default());
    what(TRIAL.record);
    for n in 0..Trial::MOST_CALLS + 10 {
        assert_eq!(f(n, 2.0), n as f64 + 2.0);
    }
    assert_eq!(state().n_recorded, Trial::MOST_CALLS + 10);
    for n in [0, 1, Trial::MOST_CALLS - 1] {
        let call = Ring::of_bytes(&bytes(placed.data + Trial::CALLS + n * 128));
        assert_eq!(call.state & 0xffff_ffff, 1);
        assert_eq!(call.word(Word::general(7, 8)), Some(n));
        assert_eq!(call.word(F64), Some(2.0f64.to_bits()));
        assert_eq!(call.word(Word::general(3, 8)), None);
    }
    for (now, wants) in [(TRIAL.old, 3.0), (TRIAL.new, -1.0)] {
        what(now);
        (0..100).for_each(|_| assert_eq!(f(1, 2.0), wants));
    }
    let Trial { old: first, new: second, .. } = state();
    assert_eq!((first[1], second[1]), (100, 100));
    assert!(first[0] > 0 && second[0] > 0);
    what(TRIAL.alternate);
    let n_new = (0..10_000).filter(|_| f(1, 2.0) < 0.0).count();
    assert!((4_700..5_300).contains(&n_new), "{n_new}");
    assert_eq!(state().new[1], 100 + n_new as u64);
    // No two in a row hang together: runs are as long as those of a coin.
    let mut runs = 0;
    let mut last = 0.0;
    for _ in 0..10_000 {
        let now = f(1, 2.0);
        runs += usize::from(now != last);
        last = now;
    }
    assert!((4_700..5_300).contains(&runs), "{runs}");
}

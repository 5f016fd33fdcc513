//! `engraft query T 'PATH; PATH'`: several paths at once.

use super::answer::query_view;
use super::functions::Functions;
use super::source::Binaries;
use super::{Args, may_follow, searched, want};
use crate::output::{self, Answer, Format, Hinted};
use std::io;
use trace::{FlowGraphs, FuncId, Path, Scheme, Trace, Want};
use tracing::info_span;
use views::query::{PathsView, SCHEMA};

/// The paths of a text, between which `;` stands; that of `[T; 4]` in a name is no such one.
pub fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let ends = |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ';' && depth == 0
    };
    text.split(ends).filter(|part| !part.trim().is_empty()).collect()
}

/// Reads the paths of `texts`: one for each function, where `*` stands for several in its name; then those
/// that have no such block are left out, if not all are.
///
/// # Errors
/// If one is no path.
pub fn parsed(
    texts: &[&str],
    functions: &Functions<'_>,
    binaries: &Binaries<'_>,
) -> anyhow::Result<Vec<Path>> {
    let mut paths = Vec::new();
    for text in texts {
        let named = trace::path::split(text);
        let all = named.and_then(|(function, _)| functions.all(function.trim()).ok());
        match (named, all.as_deref()) {
            (Some((function, blocks)), Some(all)) if function.contains('*') && all.len() > 1 => {
                let of = |func: &FuncId| super::parsed(&format!("#{}:{blocks}", func.0), functions, binaries);
                let (read, refused): (Vec<_>, Vec<_>) = all.iter().map(of).partition(Result::is_ok);
                match refused.into_iter().next() {
                    Some(Err(err)) if read.is_empty() => return Err(err),
                    _ => paths.extend(read.into_iter().flatten()),
                }
            }
            _ => paths.push(super::parsed(text, functions, binaries)?),
        }
    }
    Ok(paths)
}

/// Searches each.
pub fn run(
    args: &Args,
    trace: &Trace,
    functions: &Functions<'_>,
    flow: &FlowGraphs,
    paths: &[Path],
) -> anyhow::Result<Answer> {
    let single = [args.per_caller, args.per_thread, args.context.is_some(), args.next.is_some()];
    if single.contains(&true) || args.previous.is_some() {
        let what = format!("{} paths are given", paths.len());
        let hint =
            "of several paths, --count, --first, --all and --nth are asked: ask for the rest one by one";
        return Err(Hinted::new(what, hint).into());
    }
    let want = want(args, trace)?;
    let scheme = args.scheme.and_then(Scheme::numbered);
    let (mut views, mut all) = (Vec::new(), Vec::new());
    for path in paths {
        let (found, used) = info_span!("search").in_scope(|| searched(args, trace, path, want, scheme))?;
        if found.count == 0 {
            may_follow(args, trace, functions, flow, path)?;
        }
        views.push(query_view(path, functions, used, want, &found));
        all.push(found);
    }
    let is_any = all.iter().any(|found| found.count > 0);
    let is_bare = args.output.format() == Format::Table && want != Want::CountAndFirst;
    if is_bare {
        let n_threads = trace.threads().map_err(|err| crate::input::unreadable(&args.trace, err))?.len();
        output::data(None, |w| {
            for (n, found) in (1..).zip(&all) {
                match want {
                    Want::Count => writeln!(w, "{}", found.count)?,
                    Want::All => found.all.iter().try_for_each(|p| {
                        let n: usize = n;
                        write!(w, "{n} ").and_then(|()| super::position(w, n_threads, *p))
                    })?,
                    _ => match found.first {
                        Some(p) => super::position(w, n_threads, p),
                        None => writeln!(w, "-"),
                    }?,
                }
            }
            io::Result::Ok(())
        })?;
    } else {
        args.output.print(&PathsView { schema: SCHEMA, paths: views })?;
    }
    Ok(if is_any || want == Want::Count { Answer::Yes } else { Answer::No })
}

//! What verbs are given: binaries, profiles, and the names of things in them.

pub mod names;

use crate::output::{self, Hinted};
use anyhow::Context as _;
use matching::Map;
use measure::points::Points;
use profile::recording::Whole;
use profile::{Format, Imported, Lost, Profile, ReadError, Written};
use program::image::RelocationTo;
use program::{FuncId, Image, Program, Va};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tracing::info_span;
use views::share;

/// Reads and analyses the binary at `path`.
pub fn program(path: &Path) -> anyhow::Result<Program> {
    if path == Path::new("-") {
        let hint = "write it to a file first: `cat > FILE`\na file of that name is `./-`";
        return Err(Hinted::new("a program is not read from standard input", hint).into());
    }
    let image = info_span!("load").in_scope(|| Image::load(path))?;
    Ok(info_span!("analyze").in_scope(|| Program::analyze(image)))
}

/// Reads and analyses two builds.
pub fn pair(old: &Path, new: &Path) -> anyhow::Result<(Program, Program)> {
    let (old, new) = (program(old)?, program(new)?);
    Ok((old, new))
}

/// Reads the map at `path` of what became what between `old` and `new`.
///
/// # Errors
/// If it cannot be read, or is of other builds.
pub fn map(path: &Path, old: &Program, new: &Program) -> anyhow::Result<Map> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Map::parse(&text, old, new).with_context(|| format!("cannot use {}", path.display()))
}

/// All of the file at `path`, of a trace what it comes to as a recording; `-` is standard input, which can be
/// asked for again.
fn bytes(path: &Path) -> anyhow::Result<Cow<'static, [u8]>> {
    static STDIN: OnceLock<Vec<u8>> = OnceLock::new();
    if is_trace(path) {
        return Ok(Cow::Owned(profile::recording::write(&trace_counts(path, None)?)));
    }
    if path != Path::new("-") {
        let read = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return Ok(Cow::Owned(read));
    }
    if STDIN.get().is_none() {
        let mut read = Vec::new();
        std::io::stdin().lock().read_to_end(&mut read).context("cannot read standard input")?;
        let _set_before = STDIN.set(read);
    }
    Ok(Cow::Borrowed(STDIN.get().map_or(&[], Vec::as_slice)))
}

/// Reads the profile at `path`, in whatever format it is.
///
/// # Errors
/// If it cannot be read, is of another build than `program`, or says nothing of it.
pub fn profile(path: &Path, program: Option<&Program>) -> anyhow::Result<Imported> {
    let _span = info_span!("read").entered();
    let bytes = bytes(path)?;
    refuse_empty(path, &bytes)?;
    if bytes.starts_with(b"\x7fELF") {
        let hint = "give what was recorded when it ran: `perf record`, valgrind, or `engraft count`";
        let message = format!("{} is a program, not a profile", path.display());
        return Err(Hinted::new(message, hint).into());
    }
    say_faults(&bytes);
    let context = profile::Context { program };
    let read = match measure::recording::is_one(&bytes) {
        true => raw(&bytes, &context),
        false => profile::read(&bytes, &context),
    };
    let read = match read {
        Err(err @ ReadError::Damaged { .. }) => match whole(path, &bytes) {
            Some(whole) => profile::read(&profile::recording::write(&whole), &context),
            None => Err(err),
        },
        read => read,
    };
    let read = read.with_context(|| format!("cannot use {}", path.display()))?;
    if let Some(program) = program {
        fits(path, &read, program)?;
    }
    if read.format == Format::Callgrind && !profile::callgrind::has_jumps(&bytes) {
        let hint = "take it with `valgrind --tool=callgrind --dump-instr=yes --collect-jumps=yes`";
        let what = "counts no jumps: where branches went is guessed from the counts of blocks";
        output::warn(&format!("{} {what}", path.display()), Some(hint));
    }
    Ok(read)
}

/// The profile in a recording as a counted program left it.
fn raw(bytes: &[u8], context: &profile::Context) -> Result<Imported, ReadError> {
    let profiles = measure::recording::parse(bytes)?;
    let profile = profile::recording::choose(profiles, context, bytes.len())?;
    Ok(Imported { profile, format: Format::Engraft, lost: Vec::new() })
}

fn refuse_empty(path: &Path, bytes: &[u8]) -> Result<(), Hinted> {
    let hint = "the run that should have written it ended early, or recorded nothing";
    if bytes.is_empty() { Err(Hinted::new(format!("{} is empty", path.display()), hint)) } else { Ok(()) }
}

/// Reads the profile at `path` of `bolted`, which llvm-bolt made of `original`, as one of `original`.
///
/// # Errors
/// As [`profile`], or if `bolted` does not say what became of what.
pub fn bolted_profile(path: &Path, bolted: &Program, original: &Program) -> anyhow::Result<Imported> {
    let mut read = profile(path, Some(bolted))?;
    let (translated, lost) = profile::bat::translate(&read.profile, bolted, original)
        .map_err(|err| Hinted::new(err.to_string(), err.hint()))?;
    read.profile = translated;
    read.lost.extend(lost);
    fits(path, &read, original)?;
    Ok(read)
}

/// Whether the file at `path` is a recording; not if it cannot be read.
pub fn is_recording(path: &Path) -> bool {
    starts(path, 64).is_some_and(|start| profile::recording::is_one(&start))
}

/// All profiles of the recording at `path`; `None` if it is something else.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn recording(path: &Path) -> anyhow::Result<Option<Vec<Profile>>> {
    let bytes = bytes(path)?;
    if !profile::recording::is_one(&bytes) {
        return Ok(None);
    }
    say_faults(&bytes);
    let profiles = match measure::recording::is_one(&bytes) {
        true => measure::recording::parse(&bytes),
        false => profile::recording::parse(&bytes),
    };
    let profiles = profiles.or_else(|err| whole(path, &bytes).ok_or(err));
    profiles.map(Some).with_context(|| format!("cannot use {}", path.display()))
}

/// Whether the file at `path` is a trace; not if it cannot be read.
pub fn is_trace(path: &Path) -> bool {
    starts(path, 16).is_some_and(|start| trace::file::is_one(&start))
}

/// The first `n_bytes` of the file at `path`. Not of a pipe: what is read there is gone.
fn starts(path: &Path, n_bytes: u64) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    let file = path.is_file().then(|| std::fs::File::open(path).ok())??;
    file.take(n_bytes).read_to_end(&mut start).ok()?;
    Some(start)
}

/// Reads a number from 1 on from the command line.
///
/// # Errors
/// If it is none.
pub fn from_one(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "it is a number from 1 on")
}

/// How often each block of each module ran, by the trace at `path`: in all threads, or in the n-th, from 1.
///
/// # Errors
/// If it cannot be read, knows no program, or there are fewer threads; if a module is not the file any more
/// that was recorded.
pub fn trace_counts(path: &Path, thread: Option<NonZeroUsize>) -> anyhow::Result<Vec<Profile>> {
    let trace = crate::query::open(path)?;
    let failed = |err| crate::query::unreadable(path, err);
    let (names, modules) = (trace.names().map_err(failed)?, trace.flow().map_err(failed)?.modules);
    if modules.is_empty() {
        let hint = "traces of plain files say nothing of a program; those of `engraft trace` do";
        return Err(Hinted::new(format!("{} knows no program", path.display()), hint).into());
    }
    let thread = thread.map(|n| crate::query::at::nth(path, &trace, n)).transpose()?;
    let counts = trace.block_counts(thread.map(|of| of.thread)).map_err(failed)?;
    let mut profiles = Vec::new();
    for (n, module) in modules.iter().enumerate() {
        let image = recorded_image(&module.path, module.key)?;
        let mut profile = Profile { image: profile::ImageRef::of(&image), ..Profile::default() };
        profile.image.name.clone_from(&module.path);
        let end = modules.get(n + 1).map_or(u32::MAX, |next| next.first);
        for (&func, function) in names.functions.range(module.first..end) {
            for (&block, at) in &function.blocks {
                profile.blocks.insert(Va(at.at), counts.get(&(func, block)).copied().unwrap_or(0));
            }
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

/// A path as recordings and traces have it, which are text: a byte that is none is `\xNN`.
pub fn written_path(path: &Path) -> String {
    let chunks = path.as_os_str().as_bytes().utf8_chunks();
    let written = chunks.map(|chunk| {
        let bytes = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        chunk.valid().to_owned() + &bytes.collect::<String>()
    });
    written.collect()
}

/// The path that was written so: unless there is a file that is called that, `\xNN` is a byte that is no
/// text.
pub fn recorded_path(written: &str) -> PathBuf {
    let mut parts = written.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| !byte.is_ascii()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(part.bytes().skip(2));
            }
            None => {
                bytes.extend(b"\\x");
                bytes.extend(part.bytes());
            }
        }
    }
    let (as_it_is, read) = (PathBuf::from(written), PathBuf::from(OsStr::from_bytes(&bytes)));
    if as_it_is.exists() || !read.exists() { as_it_is } else { read }
}

/// A file that a trace is of, which has the key that the trace has, loaded.
///
/// # Errors
/// If it is gone, another one by now, or cannot be read.
pub fn recorded_image(path: &str, key: u32) -> anyhow::Result<Image> {
    let refused = |what| Hinted::new(what, "put the file that was recorded where it was");
    let there = recorded_path(path);
    if matches!(there.try_exists(), Ok(false)) {
        return Err(refused(format!("{path}, which was recorded, is gone")).into());
    }
    let image = Image::load(&there)?;
    if crate::count::prepare::events_key(probe::file_key(&image)) != key {
        return Err(refused(format!("{path} is not the file any more that was recorded")).into());
    }
    Ok(image)
}

/// What is said where threads had to count together.
pub const SHARED: &str = "more threads than there is room for counted together: some counts may be lost";
/// What is said where not all was written down of what handlers of signals left.
pub const UNKNOWN: &str =
    "handlers of signals did not return to more places than there is room for: counts around them may be off";

/// Says what a counted program that made its recording by itself could not count.
fn say_faults(bytes: &[u8]) {
    let faults = measure::recording::faults(bytes);
    if faults.n_shared > 0 {
        output::warn(SHARED, None);
    }
    if faults.n_unknown > 0 {
        output::warn(UNKNOWN, None);
    }
}

fn is_partly_whole(bytes: &[u8]) -> bool {
    whole_of(bytes).is_some()
}

/// What is whole of a recording that is damaged, if anything is.
fn whole_of(bytes: &[u8]) -> Option<Whole> {
    let whole = match measure::recording::is_one(bytes) {
        true => measure::recording::whole_of(bytes),
        false => profile::recording::whole_of(bytes),
    };
    whole.filter(|whole| !whole.profiles.is_empty())
}

/// The profiles that are whole in the recording at `path`, which is not, if there are any; says so.
fn whole(path: &Path, bytes: &[u8]) -> Option<Vec<Profile>> {
    let whole = whole_of(bytes)?;
    let (n, all) = (whole.profiles.len(), whole.n_images);
    let what =
        format!("{} was cut off or changed: {n} of its {all} modules are whole, and used", path.display());
    output::warn(&what, None);
    Some(whole.profiles)
}

/// All profiles of the recording at `path`, which must be one.
///
/// # Errors
/// If it is something else, cannot be read, or is damaged.
pub fn needed_recording(path: &Path) -> anyhow::Result<Vec<Profile>> {
    let there = bytes(path)?;
    refuse_empty(path, &there)?;
    recording(path)?.ok_or_else(|| {
        let hint = match Format::recognise(&there) {
            Some(_) => "say `show BINARY function NAME --profile FILE`",
            None => "make one: `engraft count -o FILE -- PROGRAM`",
        };
        Hinted::new(format!("{} is no recording of `engraft count`", path.display()), hint).into()
    })
}

/// Reads the plan at `path` of what to put into `program`.
///
/// # Errors
/// If it cannot be read, or a line of it cannot be understood.
pub fn points(path: &Path, program: &Program) -> anyhow::Result<Points> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let points = measure::points::parse(&text, program, |name| function(program, name))
        .with_context(|| format!("cannot use {}", path.display()))?;
    if points.plan.is_null() {
        let hint = "a line is `entry main count`, say; `engraft help instrument` has more";
        return Err(Hinted::new(format!("{} asks for nothing", path.display()), hint).into());
    }
    Ok(points)
}

/// Refuses programs whose code cannot be moved at all.
///
/// # Errors
/// If its runtime knows its code by address, as Go's does.
pub fn refuse_known_by_address(image: &Image) -> Result<(), Hinted> {
    let Some(language) = probe::runtimes::by_address(image) else { return Ok(()) };
    let message = format!("{} is {language}, which cannot be counted", image.name);
    Err(Hinted::new(message, language.hindrance()))
}

/// Why `image` cannot be rewritten: if it is for the base of gs, that may be because it counts by itself.
pub fn says_if_instrumented(image: &Image, err: anyhow::Error) -> anyhow::Error {
    let uses_gs = matches!(err.downcast_ref(), Some(probe::RewriteError::UsesGs { .. }));
    // Only those hold this that count, and we.
    if !uses_gs || memchr::memmem::find(image.file_bytes(), probe::arch::SAYS).is_none() {
        return err;
    }
    let what = format!("{} was written by `engraft instrument`, and counts by itself", image.name);
    Hinted::new(what, "run it as it is, or name the program that it was made of").into()
}

/// Refuses to put counters into programs that have something else where counters are.
///
/// With ThreadSanitizer, they end when they find counters: "unexpected memory mapping"; and theirs are where
/// an instrumented file's would be.
///
/// # Errors
/// If it was built with ThreadSanitizer.
pub fn refuse_sanitized(image: &Image) -> Result<(), Hinted> {
    let start = |name: &str| name == "__tsan_init";
    let is_imported = || {
        image.relocations.iter().any(|r| matches!(&r.to, RelocationTo::Symbol(name, _) if start(name)))
            || image.plt.iter().any(|stub| stub.import.as_deref().is_some_and(start))
    };
    if !is_imported() && !image.symbols.iter().any(|symbol| start(&symbol.name)) {
        return Ok(());
    }
    let what = "was built with ThreadSanitizer, which keeps its own data where counters would be";
    let hint = "count a build without `-fsanitize=thread`";
    Err(Hinted::new(format!("{} {what}", image.name), hint))
}

/// Says of a program whose code may be written while it runs that this is not seen where the code was moved
/// to.
pub fn warn_of_changing_code(image: &Image) {
    if image.segments.iter().any(|s| s.executable && s.writable) {
        let what = format!(
            "{} may change its own code while it runs: moved code does not change with it",
            image.name
        );
        output::warn(&what, Some("if it behaves otherwise than alone, leave it out with --modules"));
    }
}

/// What was seen at the points of a plan, in the recording at `path`.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn seen(path: &Path) -> anyhow::Result<Vec<measure::recording::Seen>> {
    let bytes = bytes(path)?;
    let seen = measure::recording::seen(&bytes)
        .or_else(|err| if is_partly_whole(&bytes) { Ok(Vec::new()) } else { Err(err) });
    seen.with_context(|| format!("cannot use {}", path.display()))
}

/// The profiles of each thread in the recording at `path`, if they were kept apart.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub fn threads(path: &Path) -> anyhow::Result<Vec<Vec<Profile>>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let threads = match measure::recording::is_one(&bytes) {
        true => measure::recording::threads(&bytes),
        false => profile::recording::threads(&bytes),
    };
    let threads = threads.or_else(|err| if is_partly_whole(&bytes) { Ok(Vec::new()) } else { Err(err) });
    threads.with_context(|| format!("cannot use {}", path.display()))
}

/// The program that `profile`, of a recording, is of: the file that was counted, if it is still that.
///
/// # Errors
/// If it is gone, or another one by now.
pub fn counted_program(profile: &Profile) -> anyhow::Result<Program> {
    let path = recorded_path(&profile.image.name);
    let program = program(&path).map_err(|err| {
        let hint = "it was counted there; name the binary where it is now: `show BINARY --counts REC`, `convert REC --binary BINARY`";
        if path.exists() { err } else { Hinted::new(format!("{err:#}"), hint).into() }
    })?;
    if profile.image.id != Some(program.image.id) {
        let what = format!("{} is not the file any more that was counted", path.display());
        return Err(Hinted::new(what, "name the binary that was counted").into());
    }
    Ok(program)
}

/// What of a profile's counts has a place in its program.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    /// Counts that have one.
    pub kept_count: u64,
    /// Counts that have none.
    pub lost_count: u64,
    /// What and why, the largest first.
    pub lost: Vec<Lost>,
}

impl Fit {
    /// Of `read` in `program`.
    pub fn of(read: &Imported, program: &Program) -> Fit {
        let p = &read.profile;
        let is_block = |at: Va| program.block_from(at).is_some();
        let blocks = || p.blocks.iter().map(|(&at, &n)| (is_block(at), n));
        let edges = || p.edges.iter().map(|(e, &n)| (is_block(e.from) && is_block(e.to), n));
        let entries = || p.entries.iter().map(|(&at, &n)| (is_block(at), n));
        let sum = |counts: &mut dyn Iterator<Item = (bool, u64)>, placed: bool| {
            counts.filter(|(there, _)| *there == placed).fold(0_u64, |sum, (_, n)| sum.saturating_add(n))
        };
        // Counts of blocks follow from those of edges, where there are any.
        let counts = |placed: bool| match p.edges.is_empty() {
            true => sum(&mut blocks(), placed).max(sum(&mut entries(), placed)),
            false => sum(&mut edges(), placed).saturating_add(sum(&mut entries(), placed)),
        };
        let mut lost = read.lost.clone();
        lost.retain(|l| l.why != profile::pprof::NOT_OURS);
        if counts(false) > 0 {
            let (what, why) = ("addresses".to_owned(), "no block of the program starts there".to_owned());
            lost.push(Lost { what, why, count: counts(false) });
        }
        lost.sort_by_key(|l| std::cmp::Reverse(l.count));
        let outside = p.calls_out.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
        Fit {
            kept_count: counts(true).saturating_add(if p.edges.is_empty() { 0 } else { outside }),
            lost_count: lost.iter().fold(0, |sum, l| sum.saturating_add(l.count)),
            lost,
        }
    }

    /// Of all counts, the share without a place.
    #[expect(clippy::cast_precision_loss, reason = "a share is for comparing")]
    pub fn lost_share(&self) -> f64 {
        self.lost_count as f64 / self.kept_count.saturating_add(self.lost_count).max(1) as f64
    }

    /// Whether so much has none that it may well be of another build.
    pub fn is_poor(&self) -> bool {
        self.lost_share() > POOR
    }
}

/// Of a profile's counts, so much may have no place in its program without a word.
const POOR: f64 = 0.1;
/// If more has none, it is of another program, whatever names both have: `main`, `_start`.
const FOREIGN: f64 = 0.9;

/// Refuses a profile that says nothing of `program`, or hardly anything, and warns of one that says little.
fn fits(path: &Path, read: &Imported, program: &Program) -> anyhow::Result<()> {
    let fit = Fit::of(read, program);
    let p = &read.profile;
    let counts = p.entries.values().chain(p.blocks.values()).chain(p.edges.values());
    let why = fit.lost.first().map_or_else(String::new, |l| format!(" ({}: {})", l.what, l.why));
    let of_another = "give it the binary that was profiled\n`engraft convert` shows what a profile holds";
    if counts.into_iter().all(|n| *n == 0) {
        let message = format!("{} has no counts of {}{why}", path.display(), program.image.name);
        return Err(Hinted::new(message, of_another).into());
    }
    let unfit = || {
        format!("{} of {} does not fit {}{why}", share(fit.lost_share()), path.display(), program.image.name)
    };
    if fit.lost_share() > FOREIGN {
        return Err(Hinted::new(unfit(), of_another).into());
    }
    if fit.is_poor() {
        output::warn(&unfit(), Some("was it taken on another build?"));
    }
    Ok(())
}

/// Writes `profile` to `path`, in the format that `to` names or the extension says.
///
/// # Errors
/// If neither names one, it cannot hold the profile, or the file cannot be written.
pub fn write_profile(
    path: &Path,
    to: Option<Format>,
    profile: &Profile,
    program: Option<&Program>,
) -> anyhow::Result<Written> {
    let format = output_format(path, to)?;
    let _span = info_span!("write").entered();
    let completed = match program {
        // In our own formats, what was not counted stays unknown.
        Some(program) if !matches!(format, Format::Engraft | Format::Json | Format::Csv) => {
            let mut completed = profile.clone();
            profile::flow::complete(program, &mut completed);
            Some(completed)
        }
        _ => None,
    };
    let written = profile::write(completed.as_ref().unwrap_or(profile), program, format)?;
    output::data(Some(path), |w| w.write_all(&written.bytes))?;
    if let Some(program) = program.filter(|p| format == Format::Fdata && !has_symbols(p)) {
        let warning = format!(
            "{} has no symbols, and llvm-bolt refuses records of functions without: it will use nothing of {}",
            program.image.name,
            path.display()
        );
        let hint = "write a .engraft file in place of it, and then\n\
                    `engraft convert IT.engraft --binary UNSTRIPPED -o OUT.fdata` with the same build before it was stripped";
        output::warn(&warning, Some(hint));
    }
    Ok(written)
}

/// Whether llvm-bolt finds functions in it by name: it reads `.symtab`, not what the dynamic linker needs.
fn has_symbols(program: &Program) -> bool {
    program.image.symbols.iter().any(|s| !s.dynamic && s.kind == program::image::SymbolKind::Function)
}

/// The format to write `path` in.
///
/// # Errors
/// If `to` is none and the extension says nothing; so ask before the work is done.
pub fn output_format(path: &Path, to: Option<Format>) -> anyhow::Result<Format> {
    to.or_else(|| Format::from_extension(path)).ok_or_else(|| unnamed(path, "").into())
}

/// The error for an output whose name says no format; `others` there are beside those of profiles.
pub fn unnamed(path: &Path, others: &str) -> Hinted {
    let known = written_formats().join(", ");
    let hint = format!("end its name in one of these, or say --to: {known}{others}");
    Hinted::new(format!("{} does not say in which format to write", path.display()), hint)
}

/// Reads a format's name from the command line.
pub fn format_named(name: &str) -> Result<Format, String> {
    Format::named(name)
        .filter(|f| f.is_written())
        .ok_or_else(|| format!("there are {}", written_formats().join(", ")))
}

/// The names of the formats that are written.
pub fn written_formats() -> Vec<&'static str> {
    Format::all().filter(|f| f.is_written()).map(Format::name).collect()
}

/// The function that `what` names: by symbol (of a part such as `main.cold` too), by the name in the source
/// if only one function has it, `fn3`, or any address in it.
///
/// # Errors
/// If there is none; the hint has the names that look most like it.
pub fn function(program: &Program, what: &str) -> anyhow::Result<FuncId> {
    let named = program.func_ids().find(|&f| program.function(f).names.iter().any(|n| **n == *what));
    if let Some(id) = named.or_else(|| program.func_ids().find(|f| f.to_string() == what)) {
        return Ok(id);
    }
    if let Some(id) =
        program.image.symbols.iter().filter(|s| *s.name == *what).find_map(|s| program.function_at(s.at))
    {
        return Ok(id);
    }
    let all: Vec<(FuncId, String)> =
        program.func_ids().flat_map(|f| source_names(program, f).map(move |name| (f, name))).collect();
    let mut found = names::called(&all, what);
    match found.as_slice() {
        [] => {}
        [only] => return Ok(*only),
        several => {
            let message = format!("{} functions of {} are called {what}", several.len(), program.image.name);
            found.sort_by_cached_key(|&f| (spelt(program, f).len(), f));
            let listed = found
                .iter()
                .take(8)
                .map(|&f| format!("{} is at {}", spelt(program, f), program.function(f).entry));
            return Err(Hinted::new(message, listed.collect::<Vec<_>>().join("\n")).into());
        }
    }
    if let Some(at) = address(what) {
        let holds = |f: &FuncId| program.function(*f).ranges.iter().any(|r| r.contains(&at));
        return program.function_at(at).or_else(|| program.func_ids().find(holds)).ok_or_else(|| {
            let before = program.functions.iter().rev().find(|f| f.entry <= at);
            let hint = match before {
                Some(f) => format!("the last one before it is {} at {}", f.name(), f.entry),
                None => "`engraft show BINARY functions` lists them".to_owned(),
            };
            Hinted::new(format!("no function of {} holds {at}", program.image.name), hint).into()
        });
    }
    let symbols = program.functions.iter().flat_map(|f| f.names.iter().map(|name| &**name));
    let near = names::near(symbols, what);
    let hint = match near.as_slice() {
        [] => "`engraft show BINARY functions` lists them\nan address such as 0x401136 does too".to_owned(),
        near => format!("did you mean {}?", near.join(", ")),
    };
    Err(Hinted::new(format!("no function of {} is called {what}", program.image.name), hint).into())
}

/// What the source calls it, where its symbols are decorated.
pub fn source_names(program: &Program, id: FuncId) -> impl Iterator<Item = String> {
    program.function(id).names.iter().filter_map(|name| matching::names::in_source(name))
}

/// A function's name for people: the source's, else the symbol.
pub fn spelt(program: &Program, id: FuncId) -> String {
    source_names(program, id).next().unwrap_or_else(|| program.function(id).name())
}

/// The last part of a path, for people.
pub fn file_name(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The file name of what was counted.
pub fn module_name(profile: &Profile, program: &Program) -> String {
    let name = &profile.image.name;
    file_name(if name.is_empty() { &program.image.name } else { name })
}

/// `0x401136`, or `fn_0x401136` as functions without a name are called.
fn address(text: &str) -> Option<Va> {
    let hex = text.strip_prefix("fn_").unwrap_or(text).strip_prefix("0x")?;
    u64::from_str_radix(hex, 16).ok().map(Va)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal() {
        assert_eq!(address("0x401136"), Some(Va(0x40_1136)));
        assert_eq!(address("fn_0x10"), Some(Va(0x10)));
        assert_eq!(address("401136"), None);
        assert_eq!(address("0xmain"), None);
    }
}

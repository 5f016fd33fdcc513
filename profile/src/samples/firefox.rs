//! Samples as the Firefox Profiler reads them (profiler.firefox.com), in its processed format.
//!
//! Functions are those of libraries with symbol tables, so that it needs to look nothing up; functions that
//! were inlined are labels on top of them, for the format's tables have no room for them.
//!
//! Source: github.com/firefox-devtools/profiler, docs-developer/processed-format.md.

use super::named::{NamedSamples, Origin};
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, LibraryHandle, LibraryInfo,
    Profile, ReferenceTimestamp, SamplingInterval, StackHandle, Symbol, SymbolTable, ThreadHandle, Timestamp,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// As a file.
///
/// # Errors
/// Never in fact: memory is written to.
pub fn write(named: &NamedSamples<'_>) -> serde_json::Result<Vec<u8>> {
    let samples = named.samples;
    let hertz = samples.quality.hertz;
    let interval = Duration::from_secs(1).checked_div(u32::try_from(hertz).unwrap_or(u32::MAX));
    let nanos =
        interval.map_or(1_000_000, |interval| u64::try_from(interval.as_nanos()).unwrap_or(1_000_000));
    let start = ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(named.start_ns));
    let mut profile = Profile::new(&named.title, start, SamplingInterval::from_nanos(nanos));
    profile.set_os_name("Linux");
    profile.set_symbolicated(true);
    let categories = Categories {
        user: profile.add_category("User", CategoryColor::Yellow),
        kernel: profile.add_category("Kernel", CategoryColor::Orange),
        inlined: profile.add_category("Inlined", CategoryColor::LightBlue),
    };
    let libraries = libraries(&mut profile, named);
    let threads = threads(&mut profile, named);
    let mut stacks: HashMap<(ThreadHandle, u32), StackHandle> = HashMap::new();
    for sample in samples.iter() {
        let Some(&thread) = threads.get(sample.thread as usize) else { continue };
        let is_time = samples.events.get(sample.event as usize).is_some_and(|event| event.is_time);
        let path: Vec<u32> =
            std::iter::successors(Some(sample.stack), |stack| samples.stack(*stack).1).collect();
        let mut above = None;
        for stack in path.into_iter().rev() {
            above = Some(match stacks.get(&(thread, stack)) {
                Some(known) => *known,
                None => {
                    let number = samples.stack(stack).0;
                    let Some(made) =
                        stack_of(&mut profile, named, &libraries, &categories, (thread, above, number))
                    else {
                        continue;
                    };
                    stacks.insert((thread, stack), made);
                    made
                }
            });
        }
        let at = Timestamp::from_nanos_since_reference(sample.time);
        let took = if is_time { CpuDelta::from_nanos(sample.period) } else { CpuDelta::ZERO };
        profile.add_sample(thread, at, above, took, 1);
    }
    serde_json::to_vec(&profile)
}

struct Categories {
    user: CategoryHandle,
    kernel: CategoryHandle,
    inlined: CategoryHandle,
}

/// A process's threads, by number.
fn threads(profile: &mut Profile, named: &NamedSamples<'_>) -> Vec<ThreadHandle> {
    let start = Timestamp::from_nanos_since_reference(0);
    let mut processes = BTreeMap::new();
    let all = named.samples.threads.iter().map(|thread| {
        let process = *processes
            .entry(thread.process)
            .or_insert_with(|| profile.add_process(&named.title, thread.process, start));
        let made = profile.add_thread(process, thread.number, start, thread.process == thread.number);
        profile.set_thread_name(made, &thread.name);
        made
    });
    all.collect()
}

/// A library's symbols are where its functions are sampled: what is at an address is known by that alone.
fn libraries(profile: &mut Profile, named: &NamedSamples<'_>) -> Vec<LibraryHandle> {
    let mut symbols: Vec<BTreeMap<u32, String>> = vec![BTreeMap::new(); named.modules.len()];
    for frame in &named.frames {
        if let (Origin::Module(module, at), Some(function)) = (frame.origin, frame.functions.first())
            && let Some(symbols) = symbols.get_mut(module as usize)
        {
            symbols.insert(rva(at), function.function.clone());
        }
    }
    let all = named.modules.iter().zip(symbols).map(|(module, symbols)| {
        let name = module.path.rsplit('/').next().unwrap_or(&module.path).to_owned();
        let symbols = symbols.into_iter().map(|(address, name)| Symbol { address, size: Some(1), name });
        let id: Option<String> =
            module.build_id.as_ref().map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect());
        profile.add_lib(LibraryInfo {
            debug_name: name.clone(),
            name,
            path: module.path.clone(),
            debug_path: module.path.clone(),
            debug_id: Default::default(),
            code_id: id,
            arch: None,
            symbol_table: Some(Arc::new(SymbolTable::new(symbols.collect()))),
        })
    });
    all.collect()
}

/// Addresses of libraries have 32 bits; those of images that are linked higher are cut.
fn rva(at: program::Va) -> u32 {
    u32::try_from(at.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// The stack of a frame, by number, that was called from the stack `above`.
fn stack_of(
    profile: &mut Profile,
    named: &NamedSamples<'_>,
    libraries: &[LibraryHandle],
    categories: &Categories,
    (thread, mut above, number): (ThreadHandle, Option<StackHandle>, u32),
) -> Option<StackHandle> {
    let frame = named.frame(number)?;
    for (n, function) in frame.functions.iter().enumerate() {
        let library = match frame.origin {
            Origin::Module(module, at) if n == 0 => {
                libraries.get(module as usize).map(|library| (*library, rva(at)))
            }
            _ => None,
        };
        let category = match frame.origin {
            Origin::Kernel => categories.kernel,
            _ if n > 0 => categories.inlined,
            Origin::Module(..) | Origin::Elsewhere => categories.user,
        };
        let what = match library {
            Some((library, at)) => Frame::RelativeAddressFromInstructionPointer(library, at),
            None => Frame::Label(profile.intern_string(&function.function)),
        };
        let info = FrameInfo { frame: what, category_pair: category.into(), flags: FrameFlags::empty() };
        let made = profile.intern_frame(thread, info);
        above = Some(profile.intern_stack(thread, above, made));
    }
    above
}

#[cfg(test)]
mod tests {
    use super::super::testing::named;
    use super::*;
    use serde_json::Value;

    /// The names of the frames of the `n`th sample, the outermost first, as the format's tables have them.
    fn names(file: &Value, n: usize) -> Vec<String> {
        let thread = &file["threads"][0];
        let index = |table: &str, column: &str, at: &Value| {
            let at = usize::try_from(at.as_u64().expect("a number")).expect("small");
            thread[table][column][at].clone()
        };
        let strings =
            file.pointer("/shared/stringArray").or_else(|| thread.get("stringArray")).expect("there");
        let mut at = thread["samples"]["stack"][n].clone();
        let mut all = Vec::new();
        while !at.is_null() {
            let func = index("frameTable", "func", &index("stackTable", "frame", &at));
            let name = index("funcTable", "name", &func).as_u64().expect("a number");
            all.push(strings[usize::try_from(name).expect("small")].as_str().expect("a name").to_owned());
            at = index("stackTable", "prefix", &at);
        }
        all.reverse();
        all
    }

    #[test]
    fn samples_have_their_stacks_and_times() {
        let samples = super::super::tests::samples();
        let bytes = write(&named(&samples)).expect("memory");
        let file: Value = serde_json::from_slice(&bytes).expect("it is JSON");
        assert_eq!(names(&file, 0), ["start", "main", "inlined", "do_it"]);
        assert_eq!(names(&file, 1), ["start", "main", "inlined"]);
        let thread = &file["threads"][0];
        assert_eq!((&thread["name"], &thread["samples"]["length"]), (&"work".into(), &4.into()));
        assert_eq!(file["meta"]["product"], "program");
        assert_eq!(file["libs"][0]["codeId"], "0a0b");
    }
}

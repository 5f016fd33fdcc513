//! A recording of samples, opened: its samples, its programs as far as they were kept, the names of frames.

use super::fill::{called, view};
use crate::input::{self, Source, names};
use crate::output;
use measure::reports::sampled::{self, Who};
use profile::recording::Recording;
use profile::samples::{self, Frame, Named, NamedFrame, NamedModule, NamedSamples, Origin, Samples};
use program::{ImageId, Lines, Program, Va};
use std::path::{Path, PathBuf};
use views::sample::SampleView;

/// A recording that has samples.
pub struct Recorded {
    path: PathBuf,
    recording: Recording,
    /// Its samples.
    pub samples: Samples,
    /// Its modules, by number, as far as their code was kept.
    pub programs: Vec<Option<Program>>,
}

impl Recorded {
    /// Of what was read from `path`: nothing, if it has no samples.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn of(path: &Path, source: &Source) -> anyhow::Result<Option<Recorded>> {
        let Some(recording) = source.sampled()? else { return Ok(None) };
        let Some((_, body)) = recording.sections.iter().find(|(tag, _)| *tag == samples::SECTION) else {
            return Ok(None);
        };
        let samples = Samples::parse(body)?;
        let programs = recording.modules.iter().map(|module| input::kept_program(&[module]).ok()).collect();
        Ok(Some(Recorded { path: path.to_owned(), recording, samples, programs }))
    }

    /// The same of the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn open(path: &Path) -> anyhow::Result<Option<Recorded>> {
        if !input::is_recording(path) {
            return Ok(None);
        }
        Recorded::of(path, &Source::read(path)?)
    }

    /// All that is said of it.
    pub fn view(&self) -> SampleView {
        view(&self.path, self.recording.run.as_ref(), &self.samples, &self.programs)
    }

    /// The functions that frames are in and that are called `name`.
    pub fn called(&self, name: &str) -> Vec<Who> {
        let mut all: Vec<Who> =
            self.samples.frames().iter().map(|frame| sampled::who(frame, &self.programs)).collect();
        all.sort();
        all.dedup();
        let bare = name.split_once('!').map_or(name, |(_, name)| name);
        let is_it = |who: &Who| {
            let (function, module, _) = called(who, &self.programs);
            let is_of = name.split_once('!').is_none_or(|(of, _)| module == of);
            let symbol = match who {
                Who::Function(module, func) => {
                    self.programs.get(*module).and_then(Option::as_ref).map(|program| {
                        let function = program.function(*func);
                        function.name() == bare || function.names.iter().any(|symbol| **symbol == *bare)
                    })
                }
                _ => None,
            };
            let shortest = function.split_once('(').map_or(function.as_str(), |(name, _)| name);
            is_of && (function == bare || shortest == bare || symbol == Some(true))
        };
        all.retain(is_it);
        all
    }

    /// What module `n` is called.
    pub fn module(&self, n: u32) -> Option<String> {
        self.recording.modules.get(n as usize).map(|module| input::file_name(&module.profile.image.name))
    }

    /// The files that it has modules of, each with what identifies it, if that was kept.
    pub fn images(&self) -> impl Iterator<Item = (String, Option<ImageId>)> {
        let images = self.recording.modules.iter().map(|module| &module.profile.image);
        images.map(|image| (input::file_name(&image.name), image.id))
    }

    /// With the names of its frames.
    pub fn named(&self) -> NamedSamples<'_> {
        let lines: Vec<Option<Lines>> = self
            .programs
            .iter()
            .map(|program| program.as_ref().and_then(|p| Lines::load(&p.image)))
            .collect();
        let frames = self.samples.frames().iter().map(|frame| self.named_frame(frame, &lines)).collect();
        let module = |module: &profile::recording::Module, program: &Option<Program>| NamedModule {
            path: module.profile.image.name.clone(),
            build_id: module.profile.image.build_id.clone(),
            code: program
                .iter()
                .flat_map(|p| &p.image.segments)
                .filter(|s| s.executable)
                .map(|s| (s.range.clone(), s.offset))
                .collect(),
        };
        let run = self.recording.run.as_ref();
        let command = run.and_then(|run| run.command.first());
        NamedSamples {
            samples: &self.samples,
            frames,
            modules: self.recording.modules.iter().zip(&self.programs).map(|(m, p)| module(m, p)).collect(),
            title: command.map_or_else(String::new, |command| input::file_name(command)),
            start_ns: run.map_or(0, |run| run.start_ns),
        }
    }

    fn named_frame(&self, frame: &Frame, lines: &[Option<Lines>]) -> Named {
        let who = sampled::who(frame, &self.programs);
        let (function, _, _) = called(&who, &self.programs);
        let (origin, at) = match frame {
            Frame::Code { module, at } => (Origin::Module(*module, *at), Some((*module as usize, *at))),
            Frame::Kernel(_) => (Origin::Kernel, None),
            Frame::Named(_) | Frame::Unknown => (Origin::Elsewhere, None),
        };
        let inlined =
            at.map_or_else(Vec::new, |(module, at)| inlined(lines.get(module).and_then(Option::as_ref), at));
        let mut functions = vec![NamedFrame { function, line: None }];
        for (n, (name, line)) in inlined.into_iter().rev().enumerate() {
            match functions.first_mut().filter(|_| n == 0) {
                // The outermost is the function itself.
                Some(own) => own.line = line,
                None => functions.push(NamedFrame { function: name, line }),
            }
        }
        Named { origin, functions }
    }
}

/// The functions that the instruction at `at` is of, the innermost first: their names, their lines.
fn inlined(lines: Option<&Lines>, at: Va) -> Vec<(String, Option<(String, u32)>)> {
    let frames = lines.map(|lines| lines.frames(at)).unwrap_or_default();
    let named = |symbol: &str| {
        let source = names::source_name(symbol).filter(|_| !output::are_names_mangled());
        source.unwrap_or_else(|| symbol.to_owned())
    };
    frames
        .into_iter()
        .map(|frame| {
            (
                frame.function.as_deref().map_or_else(|| "[unknown]".to_owned(), named),
                frame.file.zip(frame.line),
            )
        })
        .collect()
}

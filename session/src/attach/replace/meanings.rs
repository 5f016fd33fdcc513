//! What names mean in a process: as its dynamic linker has bound them for others, or would bind them.
//!
//! Source: System V ABI, chapter 5, shared object dependencies; GNU symbol versioning (LSB 5.0, 10.7).

use super::{Mapped, RunningProgram, places};
use live::RunningMemory;
use probe::graft::{Meaning, Name};
use program::image::{Defined, Definition, RelocationTo};
use program::{Bias, Image, LiveVa, Va};
use std::cell::OnceCell;
use std::path::Path;

/// The modules of a process, in the order in which names are looked for in them.
pub(super) struct Meanings<'a> {
    memory: Option<RunningMemory>,
    modules: Vec<Module<'a>>,
    /// Which of them is the one whose function is replaced.
    own: usize,
}

struct Module<'a> {
    mapped: &'a Mapped,
    image: OnceCell<Option<(Image, Bias)>>,
    is_executable: bool,
}

impl Module<'_> {
    fn image(&self) -> Option<&(Image, Bias)> {
        let load = || {
            let image = Image::load(&self.mapped.file).ok()?;
            let bias = places::bias(&image, self.mapped)?;
            Some((image, bias))
        };
        self.image.get_or_init(load).as_ref()
    }

    /// What it has of `name`, and how far it was moved.
    fn definitions(&self, name: &Name) -> Option<(Vec<Definition>, &Image, Bias)> {
        let (image, bias) = self.image()?;
        Some((image.definitions(|one| one == &*name.name), image, *bias))
    }
}

impl<'a> Meanings<'a> {
    /// Those of `process`, as the module of which `own` is the file asks for them.
    pub(super) fn new(process: &'a RunningProgram, own: &Path) -> Meanings<'a> {
        let module = |(n, mapped): (usize, &'a Mapped)| Module {
            mapped,
            image: OnceCell::new(),
            is_executable: n == 0,
        };
        Meanings {
            memory: RunningMemory::of(process.pid).ok(),
            modules: process.modules.iter().enumerate().map(module).collect(),
            own: process.modules.iter().position(|module| module.path == own).unwrap_or(0),
        }
    }

    /// What `name` means; or why it means nothing.
    pub(super) fn of(&self, name: &Name) -> Result<Meaning, String> {
        if let Some(at) = self.bound(name) {
            return Ok(Meaning::At(at));
        }
        let mut is_chosen = false;
        for module in &self.modules {
            let Some((found, image, bias)) = module.definitions(name) else { continue };
            let Some(one) = found.iter().find(|one| one.is_exported && fits(one, name)) else { continue };
            match one.defined {
                Defined::Here => return Ok(Meaning::At(bias.to_live(one.at))),
                Defined::OfThreads => return self.of_threads(module, image, one),
                Defined::Resolver => match self.chosen(image, bias, one.at) {
                    Some(at) => return Ok(Meaning::At(at)),
                    None => is_chosen = true,
                },
            }
        }
        if is_chosen {
            return Err("a resolver chooses, which nobody in the process has asked yet".to_owned());
        }
        self.named(name)
    }

    /// What another module has bound `name` to, if that is a definition of it: which of several that is, the
    /// dynamic linker has decided.
    fn bound(&self, name: &Name) -> Option<LiveVa> {
        if name.is_of_threads {
            return None;
        }
        let slots = self.modules.iter().filter_map(Module::image).flat_map(|(image, bias)| {
            let is_it = |relocation: &&program::image::Relocation| {
                matches!(&relocation.to, RelocationTo::Symbol(of, _) if **of == *name.name)
            };
            image.relocations.iter().filter(is_it).map(|relocation| bias.to_live(relocation.at))
        });
        slots.filter_map(|slot| self.word(slot)).find(|at| self.is_definition(name, *at)).map(LiveVa)
    }

    /// Whether a definition of `name` is at `at`, or what its resolver may have chosen: not a stub that asks
    /// the dynamic linker first.
    fn is_definition(&self, name: &Name, at: u64) -> bool {
        self.modules.iter().any(|module| {
            let Some((_, bias)) = module.image() else { return false };
            let own = bias.to_image(LiveVa(at));
            let Some((found, image, _)) = module.definitions(name) else { return false };
            found.iter().filter(|one| one.is_exported && fits(one, name)).any(|one| match one.defined {
                Defined::Here => one.at == own,
                Defined::Resolver => one.at != own && image.is_code(own) && !is_stub(image, own),
                Defined::OfThreads => false,
            })
        })
    }

    /// What the resolver at `at` of `image` has returned to those who have asked.
    fn chosen(&self, image: &Image, bias: Bias, at: Va) -> Option<LiveVa> {
        let asked = image.relocations.iter().filter(|one| one.to == RelocationTo::Resolver(at));
        let words = asked.filter_map(|one| self.word(bias.to_live(one.at)));
        let is_it = |word: &u64| {
            let own = bias.to_image(LiveVa(*word));
            own != at && image.is_code(own) && !is_stub(image, own)
        };
        words.into_iter().find(is_it).map(LiveVa)
    }

    /// A variable of threads.
    fn of_threads(&self, module: &Module<'_>, image: &Image, one: &Definition) -> Result<Meaning, String> {
        // Of libraries, the dynamic linker alone knows where they are.
        let below = image.thread_data_below().filter(|_| module.is_executable);
        let below = below.ok_or("is a variable of threads of a library, whose place is not known")?;
        Ok(Meaning::InThread {
            from_pointer: one.at.0.wrapping_sub(below).cast_signed(),
            // Source: Drepper, as above, 3.1: the executable is always module 1.
            module: Some(1),
            within: one.at.0,
        })
    }

    /// What the module itself, or the executable, calls so, though not for others.
    fn named(&self, name: &Name) -> Result<Meaning, String> {
        for n in [self.own, 0] {
            let Some(module) = self.modules.get(n) else { continue };
            let Some((found, image, bias)) = module.definitions(name) else { continue };
            let mut all: Vec<&Definition> = found.iter().filter(|one| one.version.is_none()).collect();
            all.sort_by_key(|one| one.at);
            all.dedup_by_key(|one| one.at);
            match all[..] {
                [] => {}
                [one] => {
                    return match one.defined {
                        Defined::Here => Ok(Meaning::At(bias.to_live(one.at))),
                        Defined::OfThreads => self.of_threads(module, image, one),
                        Defined::Resolver => Err("is chosen by a resolver".to_owned()),
                    };
                }
                _ => {
                    return Err(format!(
                        "{} things are called in {}",
                        all.len(),
                        module.mapped.path.display()
                    ));
                }
            }
        }
        Err("nothing in the process is called".to_owned())
    }

    fn word(&self, at: LiveVa) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.as_ref()?.read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

/// Whether `one` is what `name` asks for.
fn fits(one: &Definition, name: &Name) -> bool {
    match (&name.version, &one.version) {
        (Some(wanted), Some(there)) => wanted == there,
        // Made without versions, or for another library of the name.
        (Some(_), None) => true,
        (None, _) => one.is_default,
    }
}

/// Whether a PLT stub is at `at`.
fn is_stub(image: &Image, at: Va) -> bool {
    image.plt.iter().any(|stub| stub.range.contains(&at))
}

//! What processes have mapped while they are sampled: which code an address is of, and who called it.
//!
//! Source: System V ABI for x86-64, 3.7 (unwinding); DWARF 5, 6.4, as read by framehop.

use super::before::{Callers, Chain, Frame};
use super::moved::{Bytes, Moved, Place, is_ours};
use super::sizes::Need;
use super::watch::SeenImage;
use crate::attach::places;
use crate::process::{ProcessModule, ProcessModules, Whence};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use live::{Mapping, UserStack};
use program::image::Realigned;
use program::{Bias, Image, LiveVa, Va};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image that some process has mapped.
pub(super) struct Known {
    /// As it is.
    pub(super) image: Image,
    /// What its process calls it.
    pub(super) path: PathBuf,
    /// The file that it was read from, if it was.
    file: Option<PathBuf>,
    /// Where frames are relative to what is in memory.
    realigned: Vec<Realigned>,
    /// Its unwind tables, where they are in the image.
    unwind: Option<(Range<u64>, Bytes)>,
}

/// All images, each once.
#[derive(Default)]
pub(super) struct Images {
    pub(super) all: Vec<Known>,
    by_file: HashMap<(PathBuf, u64), Option<usize>>,
    kernels: Option<Option<usize>>,
    /// What stands in for functions, by number.
    pub(super) stand_ins: Vec<Box<str>>,
}

/// Code of an image in a process.
#[derive(Clone, Debug)]
struct Piece {
    end: u64,
    image: usize,
    bias: Bias,
}

/// What a process has mapped.
#[derive(Clone, Default)]
pub(super) struct Space {
    /// By where it starts.
    pieces: BTreeMap<u64, Piece>,
    unwinder: UnwinderX86_64<Bytes>,
    /// What code of engraft's own is of, if there is any.
    moved: Moved,
}

impl Images {
    /// Whether the frame at a place is relative to what is in memory.
    fn realigned(&self, place: Place) -> Option<&Realigned> {
        let Place::Code { image, at } = place else { return None };
        let all = &self.all.get(image)?.realigned;
        let n = all.partition_point(|one| one.range.start <= at);
        n.checked_sub(1).and_then(|n| all.get(n)).filter(|one| one.range.contains(&at))
    }

    /// What there is by now.
    pub(super) fn seen(&self) -> Vec<SeenImage> {
        let seen = |known: &Known| SeenImage { path: known.path.clone(), file: known.file.clone() };
        self.all.iter().map(seen).collect()
    }

    fn add(&mut self, image: Image, path: &Path, file: Option<&Path>) -> usize {
        let table = image.unwind_tables().into_iter().max_by_key(|(_, bytes)| bytes.len());
        let unwind = table.map(|(at, bytes)| (at.0..at.0 + bytes.len() as u64, Bytes::from(bytes)));
        let realigned = image.realigned();
        let (path, file) = (path.to_owned(), file.map(Path::to_owned));
        self.all.push(Known { image, path, file, realigned, unwind });
        self.all.len() - 1
    }

    /// The image of the file that process `pid` has mapped from `path`, if it is still there.
    fn of_file(&mut self, pid: u32, path: &Path, inode: u64) -> Option<usize> {
        if path == Path::new("[vdso]") {
            return self.of_kernel();
        }
        if !path.is_absolute() || path.starts_with("/memfd:") {
            return None;
        }
        if let Some(known) = self.by_file.get(&(path.to_owned(), inode)) {
            return *known;
        }
        let seen = Path::new("/proc").join(pid.to_string()).join("root");
        let seen = seen.join(path.strip_prefix("/").unwrap_or(path));
        let is_it = |file: &&Path| std::fs::metadata(file).is_ok_and(|about| about.ino() == inode);
        let file = [path, &seen].into_iter().find(is_it);
        let image = file.and_then(|file| Some((file, Image::load(file).ok()?))).map(|(file, mut image)| {
            image.name = path.display().to_string();
            self.add(image, path, Some(file))
        });
        self.by_file.insert((path.to_owned(), inode), image);
        image
    }

    /// The kernel's own module, which all processes have: ours, too.
    fn of_kernel(&mut self) -> Option<usize> {
        if let Some(known) = self.kernels {
            return known;
        }
        let ours = i32::try_from(std::process::id()).ok().and_then(|pid| ProcessModules::of(pid).ok());
        let image = ours.and_then(|ours| {
            let module = ours.all.iter().find(|module| module.name == "[vdso]")?;
            ours.image(module, false).ok()
        });
        let known = image.map(|found| self.add(found.image, Path::new("[vdso]"), None));
        self.kernels = Some(known);
        known
    }
}

/// How far `image` was moved, of which the code from `offset` on was mapped at `start`.
fn bias(image: &Image, start: LiveVa, offset: u64) -> Option<Bias> {
    const PAGE: u64 = 0x1000;
    let holds = |s: &&program::image::Segment| {
        s.executable && s.offset.0 / PAGE * PAGE <= offset && offset < s.offset.0.saturating_add(s.file_len)
    };
    let segment = image.segments.iter().find(holds)?;
    Some(Bias::between(Va(segment.range.start.0.wrapping_add(offset).wrapping_sub(segment.offset.0)), start))
}

impl Space {
    /// What the process has mapped as it is now.
    pub(super) fn of(modules: &ProcessModules, images: &mut Images) -> Space {
        let mut space = Space::default();
        for module in &modules.all {
            if let Some((image, bias)) = known(modules, module, images) {
                space.put(module.range.clone(), image, bias, images);
            }
        }
        let is_ours = |m: &Mapping| m.executable && m.path.as_deref().is_some_and(is_ours);
        if modules.mappings().iter().any(is_ours) {
            // What stands in for a function may look like a module of its own.
            space.moved.came();
            space.learn(modules.pid().cast_unsigned(), images);
        }
        space
    }

    /// Looks for what code of ours is of in process `pid`, if one of `places` is in some that may not be
    /// known yet: whether it is now.
    pub(super) fn learn_of(&mut self, pid: u32, places: &[Place], images: &mut Images) -> bool {
        let is_unknown = |place: &Place| matches!(place, Place::Elsewhere(_));
        self.moved.is_any_unknown() && places.iter().any(is_unknown) && self.learn(pid, images)
    }

    fn learn(&mut self, pid: u32, images: &mut Images) -> bool {
        let image_of = |path: &Path, at: LiveVa| {
            let by_place = self.pieces.range(..=at.0).next_back().filter(|(_, piece)| at.0 < piece.end);
            let by_path = || images.all.iter().position(|known| known.path == path);
            by_place.map(|(_, piece)| piece.image).or_else(by_path)
        };
        self.moved.learn(pid, &image_of, &mut images.stand_ins, &mut self.unwinder)
    }

    /// Code of a file was mapped.
    pub(super) fn map(
        &mut self,
        (pid, path, inode): (u32, &Path, u64),
        (range, offset): (Range<LiveVa>, u64),
        images: &mut Images,
    ) {
        if is_ours(path) {
            self.moved.came();
        }
        let image = images.of_file(pid, path, inode);
        let found = image.and_then(|n| Some((n, bias(&images.all.get(n)?.image, range.start, offset)?)));
        match found {
            Some((image, bias)) => self.put(range, image, bias, images),
            None => self.clear(&range),
        }
    }

    fn clear(&mut self, range: &Range<LiveVa>) {
        let over: Vec<u64> = self
            .pieces
            .range(..range.end.0)
            .filter(|(_, piece)| piece.end > range.start.0)
            .map(|(start, _)| *start)
            .collect();
        for start in over {
            self.pieces.remove(&start);
            self.unwinder.remove_module(start);
        }
    }

    fn put(&mut self, range: Range<LiveVa>, image: usize, bias: Bias, images: &Images) {
        self.clear(&range);
        let Some(known) = images.all.get(image) else { return };
        let (start, end) = (range.start.0, range.end.0);
        self.pieces.insert(start, Piece { end, image, bias });
        let Some((at, bytes)) = &known.unwind else { return };
        let of = |name: &str| known.image.sections.iter().find(|s| s.name == name).map(|s| s.range.clone());
        let range_of = |name: &str| of(name).map(|range| range.start.0..range.end.0);
        let sections = ExplicitModuleSectionInfo {
            // Where images are that are linked at zero.
            base_svma: 0,
            text_svma: range_of(".text"),
            got_svma: range_of(".got"),
            eh_frame_svma: Some(at.clone()),
            eh_frame: Some(Arc::clone(bytes)),
            ..ExplicitModuleSectionInfo::default()
        };
        let base = bias.to_live(Va(0)).0;
        self.unwinder.add_module(Module::new(known.image.name.clone(), start..end, base, sections));
    }

    /// Which code is at `at`.
    pub(super) fn place(&self, at: LiveVa) -> Place {
        if let Some(place) = self.moved.place(at) {
            return place;
        }
        let below = self.pieces.range(..=at.0).next_back().filter(|(_, piece)| at.0 < piece.end);
        match below {
            Some((_, piece)) => Place::Code { image: piece.image, at: piece.bias.to_image(at) },
            None => Place::Elsewhere(at),
        }
    }

    /// Where a thread was and whence it was called, into `chain`; how much of its stack that took. What lies
    /// deeper there than was copied is as it was `before`, or is read `later`.
    pub(super) fn unwind(
        &self,
        images: &Images,
        user: &UserStack,
        cache: &mut CacheX86_64,
        (before, later): (&Callers, &mut dyn FnMut(u64) -> Option<u64>),
        chain: &mut Chain,
    ) -> Need {
        let mut copy = Copied { user, needed: 0, is_left: false };
        let mut regs = UnwindRegsX86_64::new(user.at.0, user.sp, user.bp);
        let mut at = FrameAddress::from_instruction_pointer(user.at.0);
        let mut is_read_later = false;
        let is_whole = loop {
            let back = if let FrameAddress::ReturnAddress(back) = at { Some(back.get()) } else { None };
            let joined = |chain: &mut Chain, sp| back.is_some_and(|at| chain.join(before, sp, at));
            if copy.is_left && joined(chain, regs.sp()) {
                break true;
            }
            let place = self.place(LiveVa(at.address_for_lookup()));
            let realigned = images.realigned(place);
            let there = regs;
            let mut next = self.caller(realigned, (at, &mut regs), cache, &mut |at| copy.word(at));
            if copy.is_left && !matches!(next, Ok(Some(_))) {
                // From here on, it is not in the copy.
                if joined(chain, there.sp()) {
                    break true;
                }
                regs = there;
                let mut read = |at| copy.word(at).or_else(|| later(at));
                next = self.caller(realigned, (at, &mut regs), cache, &mut read);
                is_read_later |= matches!(next, Ok(Some(_)));
            }
            // What is done for a function is of that.
            let place = Some(place).filter(|place| *place != Place::Ours);
            match back {
                Some(at) => chain.push(Frame { sp: there.sp(), at, place }),
                None => chain.places.extend(place),
            }
            // No program has more; whoever changes its own stack may look as if.
            if chain.places.len() > MOST_FRAMES {
                break false;
            }
            match next {
                // Some first functions say so: nobody has called them.
                Ok(None) => break true,
                Ok(Some(next)) => at = next,
                Err(()) => break false,
            }
        };
        if let Some(last) = chain.frames.last() {
            copy.needed = copy.needed.max(last.sp.saturating_sub(user.sp));
        }
        Need { bytes: copy.needed, is_deeper: copy.is_left, is_read_later, is_whole }
    }

    /// Who called a function that is `at` a place, with these registers, which become the caller's: `None` if
    /// nobody has.
    fn caller(
        &self,
        realigned: Option<&Realigned>,
        (at, regs): (FrameAddress, &mut UnwindRegsX86_64),
        cache: &mut CacheX86_64,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<Option<FrameAddress>, ()> {
        let mut read = |at: u64| read(at).ok_or(());
        let next = match realigned {
            Some(realigned) => step(realigned, regs, &mut read),
            None => match self.unwinder.unwind_frame(at, regs, cache, &mut read) {
                Ok(None) | Err(framehop::Error::ReturnAddressIsNull) => return Ok(None),
                next => next.ok().flatten(),
            },
        };
        next.and_then(FrameAddress::from_return_address).map(Some).ok_or(())
    }
}

/// A stack as it was copied.
struct Copied<'a> {
    user: &'a UserStack,
    /// How much of it was asked for.
    needed: u64,
    /// Whether something was that is not in the copy.
    is_left: bool,
}

impl Copied<'_> {
    fn word(&mut self, at: u64) -> Option<u64> {
        let distance = at.checked_sub(self.user.sp)?;
        self.needed = self.needed.max(distance.saturating_add(8));
        let from = usize::try_from(distance).ok()?;
        let word = self.user.bytes.get(from..).and_then(|rest| rest.first_chunk());
        self.is_left |= word.is_none();
        word.map(|word| u64::from_le_bytes(*word))
    }
}

/// From a frame that is relative to what is in memory to its caller's: where that goes on.
fn step(
    realigned: &Realigned,
    regs: &mut UnwindRegsX86_64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<u64> {
    let bp = regs.bp();
    let frame = read(bp.wrapping_add_signed(realigned.at)).ok()?;
    let back = read(frame.checked_sub(8)?).ok()?;
    // Where the frame pointer leads is the caller's.
    let callers = read(bp).ok()?;
    // Stacks grow down.
    if frame <= regs.sp() {
        return None;
    }
    regs.set_sp(frame);
    regs.set_bp(callers);
    regs.set_ip(back);
    Some(back)
}

const MOST_FRAMES: usize = 1 << 13;

/// The image of a module of a process, and how far it was moved.
fn known(process: &ProcessModules, module: &ProcessModule, images: &mut Images) -> Option<(usize, Bias)> {
    let inode = process.mapping_at(module.range.start).map_or(0, |mapping| mapping.inode);
    let path = PathBuf::from(&module.name);
    let key = (path.clone(), inode);
    let is_file = path.is_absolute() && inode != 0;
    if let Some(Some(n)) = images.by_file.get(&key).filter(|_| is_file)
        && let Some(bias) = images.all.get(*n).and_then(|known| module.bias(&known.image))
    {
        return Some((*n, bias));
    }
    let found = process.image(module, false).ok()?;
    let file = module.mapped().filter(|_| found.whence == Whence::File).map(|mapped| mapped.file.as_path());
    let n = images.add(found.image, &path, file);
    if is_file {
        images.by_file.insert(key, Some(n));
    }
    Some((n, found.bias))
}

impl ProcessModule {
    /// How far `image`, which is its file's, was moved.
    fn bias(&self, image: &Image) -> Option<Bias> {
        places::bias(image, self.mapped()?)
    }
}

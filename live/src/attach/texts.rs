//! What of a module's own memory changes: its text, of which copies are made, and its data.

use super::AttachError;
use super::journal::{PutIn, Text};
use crate::give::PAGE;
use crate::process::{Mapping, Stopped, Syscall};
use nix::libc;
use probe::Patch;
use program::LiveVa;
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;

/// Copies of text, with where each is.
pub(super) type Copies = Vec<(Text, LiveVa)>;

/// The patches of `module` that are in none of its texts: jump tables.
fn data_patches(module: &PutIn) -> Vec<Patch> {
    let is_text = |patch: &&Patch| {
        let at = module.live(patch.at.0);
        module.texts.iter().any(|text| (text.at..text.at + text.len).contains(&at))
    };
    module.segments.patches.iter().filter(|patch| !is_text(patch)).cloned().collect()
}

/// What is to be written to `module`'s data so that each of its patches there is as `change` has it, which is
/// given a patch and what is there: where, and which bytes. What lies between is written as it is, where
/// nobody may write.
pub(super) fn data_writes(
    stopped: &Stopped,
    mappings: &[Mapping],
    module: &PutIn,
    change: impl Fn(&Patch, &mut [u8]),
) -> Result<Vec<(LiveVa, Vec<u8>)>, AttachError> {
    let patches = data_patches(module);
    let place = |patch: &Patch| {
        let at = module.live(patch.at.0);
        at..at + patch.new.len() as u64
    };
    let constant = |range: &Range<u64>| {
        mappings
            .iter()
            .position(|m| !m.writable && m.range.start.0 <= range.start && range.end <= m.range.end.0)
    };
    let is_near = |a: &Patch, b: &Patch| {
        let (a, b) = (place(a), place(b));
        b.start < a.end + PAGE && constant(&a).is_some() && constant(&a) == constant(&b)
    };
    let together = |patches: &[Patch]| {
        let (Some(first), Some(last)) = (patches.first(), patches.last()) else { return Ok(None) };
        let (from, end) = (place(first).start, place(last).end);
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
        stopped.read(LiveVa(from), &mut bytes)?;
        for patch in patches {
            let at = usize::try_from(place(patch).start - from).unwrap_or(0);
            if let Some(there) = bytes.get_mut(at..at + patch.new.len()) {
                change(patch, there);
            }
        }
        Ok(Some((LiveVa(from), bytes)))
    };
    patches.chunk_by(is_near).filter_map(|patches| together(patches).transpose()).collect()
}

/// Which mappings of `process` hold nothing but what their files do: none of their pages is its own.
///
/// Source: proc(5), smaps.
pub(super) fn of_files_alone(process: i32) -> Vec<Range<u64>> {
    let smaps = std::fs::read(format!("/proc/{process}/smaps")).unwrap_or_default();
    of_files_in(&String::from_utf8_lossy(&smaps))
}

fn of_files_in(smaps: &str) -> Vec<Range<u64>> {
    let mut all = Vec::new();
    let (mut range, mut n_own) = (None, 0);
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else { continue };
        let address = |text: &str| u64::from_str_radix(text, 16).ok();
        let start = first.split_once('-').and_then(|(from, to)| Some(address(from)?..address(to)?));
        let number = || second.and_then(|text| text.parse::<u64>().ok()).unwrap_or(1);
        match first {
            _ if start.is_some() => (range, n_own) = (start, 0),
            "Anonymous:" | "Swap:" => n_own += number(),
            // What stands last of each.
            "VmFlags:" => all.extend(range.take().filter(|_| n_own == 0)),
            _ => {}
        }
    }
    all
}

/// Maps `len` bytes of code from `offset` of the file at `path`, as the process sees it; `None` if that
/// cannot be.
pub(super) fn map_file(helper: &Stopped, path: &[u8], offset: u64, len: u64) -> Option<LiveVa> {
    let buffer = helper.map_anywhere(PAGE, libc::PROT_READ | libc::PROT_WRITE).ok()?;
    let mut name = path.to_vec();
    name.push(0);
    let opened = helper.write(buffer, &name).ok().filter(|()| name.len() as u64 <= PAGE).and_then(|()| {
        let flags = u64::from((libc::O_RDONLY | libc::O_CLOEXEC).cast_unsigned());
        helper
            .call(&Syscall { name: "open", number: libc::SYS_open, args: [buffer.0, flags, 0, 0, 0, 0] })
            .ok()
    });
    let mapped = opened.and_then(|fd| {
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        let at = helper.map_file_anywhere(len, rights, fd, offset);
        let args = [fd, 0, 0, 0, 0, 0];
        let _closed = helper.call(&Syscall { name: "close", number: libc::SYS_close, args });
        at.ok()
    });
    let _gone = helper.unmap(buffer, PAGE);
    mapped
}

/// Where `there`, what a process has of `text`, is not what its file has; `None` if it is, or nobody knows.
pub(super) fn first_change(helper: &Stopped, text: &Text, there: &[u8]) -> Option<LiveVa> {
    let (path, offset) = text.file.as_ref()?;
    let at = map_file(helper, path.as_os_str().as_bytes(), *offset, text.len)?;
    let mut bytes = vec![0; there.len()];
    let read = helper.read(at, &mut bytes);
    let _gone = helper.unmap(at, text.len);
    read.ok()?;
    let n = bytes.iter().zip(there).position(|(file, there)| file != there)?;
    Some(LiveVa(text.at + n as u64))
}

/// The pages of `module`'s jump tables, by address.
pub(super) fn table_pages(module: &PutIn) -> BTreeSet<u64> {
    data_patches(module).iter().map(|patch| module.live(patch.at.0) / PAGE * PAGE).collect()
}

/// Has the process have pages of its own where `module`'s data change: what is there is written once more.
pub(super) fn own_pages(helper: &Stopped, module: &PutIn) -> Result<(), AttachError> {
    let mut pages = table_pages(module);
    pages.extend(module.words().map(|word| word.0.0 / PAGE * PAGE));
    for page in pages {
        let mut word = [0; 1];
        helper.read(LiveVa(page), &mut word)?;
        helper.write(LiveVa(page), &word)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_with_pages_of_its_own_is_told_from_one_without() {
        let of = |at: &str, own: &str, swap: &str| {
            format!(
                "{at} r-xp 00002000 08:01 13 /lib/x (y).so\nSize: 8 kB\nAnonymous: {own} kB\nSwap: {swap} kB\n\
                 VmFlags: rd ex\n"
            )
        };
        let rows = [of("1000-3000", "0", "0"), of("4000-5000", "4", "0"), of("6000-7000", "0", "4")];
        let first = 0x1000..0x3000;
        assert_eq!(of_files_in(&rows.concat()), std::slice::from_ref(&first));
        // What does not say is not known.
        assert_eq!(of_files_in("1000-3000 r-xp 0 0 0 x\n"), []);
    }
}

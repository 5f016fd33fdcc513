//! Functions that align their stack: what their frames are relative to lies in memory, by the frame pointer.
//! Unwinders of samples know no expressions that read memory, so they are told.
//!
//! Source: DWARF 5, 6.4.2.2 (`DW_CFA_def_cfa_expression`), as gcc writes it (`-mstackrealign`, vectors in
//! locals): `DW_OP_breg6 n; DW_OP_deref`.
#![warn(clippy::indexing_slicing)]

use super::Image;
use crate::addr::Va;
use crate::arch::DWARF_FRAME_POINTER;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Operation, UnwindContext, UnwindSection as _,
};
use std::ops::Range;

/// Code in which the frame's address, that behind the return address, is in memory so far from where the
/// frame pointer leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Realigned {
    /// The code.
    pub range: Range<Va>,
    /// How far.
    pub at: i64,
}

impl Image {
    /// All such code, by address.
    pub fn realigned(&self) -> Vec<Realigned> {
        let mut found = Vec::new();
        for (at, bytes) in self.unwind_tables() {
            let mut bases = BaseAddresses::default().set_eh_frame(at.0);
            if let Some(text) = self.sections.iter().find(|s| s.name == ".text") {
                bases = bases.set_text(text.range.start.0);
            }
            let frames = EhFrame::new(bytes, LittleEndian);
            let mut context = UnwindContext::new();
            let mut entries = frames.entries(&bases);
            while let Ok(Some(entry)) = entries.next() {
                let CieOrFde::Fde(partial) = entry else { continue };
                let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
                let Ok(mut rows) = fde.rows(&frames, &bases, &mut context) else { continue };
                while let Ok(Some(row)) = rows.next_row() {
                    let CfaRule::Expression(expression) = row.cfa() else { continue };
                    let Ok(expression) = expression.get(&frames) else { continue };
                    let mut operations = expression.operations(fde.cie().encoding());
                    let mut next = || operations.next().ok().flatten();
                    let first = next();
                    let Some(Operation::RegisterOffset { register, offset, .. }) = first else { continue };
                    if register.0 != DWARF_FRAME_POINTER {
                        continue;
                    }
                    let is_read =
                        matches!(next(), Some(Operation::Deref { size: 8, .. })) && next().is_none();
                    if is_read {
                        let range = Va(row.start_address())..Va(row.end_address());
                        found.push(Realigned { range, at: offset });
                    }
                }
            }
        }
        found.sort_by_key(|one| one.range.start);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn code_that_aligns_its_stack_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let (text, file) = (folder.path().join("a.c"), folder.path().join("a"));
        let source = "
            void use(void *);
            void plain(void) { char a[16]; use(a); }
            void aligned(int n) { double v __attribute__((aligned(64))) = n; char pad[n]; use(&v); use(pad); }";
        std::fs::write(&text, source).expect("written");
        let made = Command::new("gcc")
            .args(["-O2", "-c", "-w"])
            .arg(&text)
            .arg("-o")
            .arg(folder.path().join("a.o"))
            .status();
        assert!(made.expect("gcc runs").success());
        let made = Command::new("gcc")
            .args(["-shared", "-nostdlib", "-Wl,--unresolved-symbols=ignore-all"])
            .arg(folder.path().join("a.o"))
            .arg("-o")
            .arg(&file)
            .status();
        assert!(made.expect("gcc runs").success());
        let image = Image::load(&file).expect("gcc makes good files");
        let aligned = image.symbols.iter().find(|s| &*s.name == "aligned").expect("it is there");
        let found = image.realigned();
        let within = aligned.at..aligned.at.plus(aligned.len);
        assert!(!found.is_empty());
        for one in &found {
            assert!(
                within.start <= one.range.start && one.range.end <= within.end && one.at == -8,
                "{one:?}"
            );
        }
        // Whoever is called from there is called behind where the stack was aligned.
        let program = crate::Program::analyze_code(image);
        let calls: Vec<Va> =
            program.calls.iter().map(|call| call.at).filter(|at| within.contains(at)).collect();
        assert_eq!(calls.len(), 2);
        assert!(calls.iter().all(|at| found.iter().any(|one| one.range.contains(at))), "{calls:?} {found:?}");
    }
}

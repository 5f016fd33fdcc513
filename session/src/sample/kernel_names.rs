//! Functions of the kernel, by address, where we may know them.
//!
//! Source: proc(5), /proc/kallsyms.

/// Their names.
#[derive(Default)]
pub(super) struct KernelNames(Vec<(u64, Box<str>)>);

impl KernelNames {
    /// As the kernel tells them: with zeros for addresses to whom it does not want to.
    pub(super) fn read() -> KernelNames {
        KernelNames::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    fn parse(text: &str) -> KernelNames {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let at = u64::from_str_radix(words.next()?, 16).ok().filter(|at| *at != 0)?;
            let is_code =
                words.next()?.eq_ignore_ascii_case("t") || line.contains(" W ") || line.contains(" w ");
            is_code.then_some((at, words.next()?.into()))
        };
        let mut all: Vec<(u64, Box<str>)> = text.lines().filter_map(line).collect();
        all.sort_by_key(|(at, _)| *at);
        KernelNames(all)
    }

    /// The function at `at`; empty, if it is not known.
    pub(super) fn at(&self, at: u64) -> &str {
        let n = self.0.partition_point(|(start, _)| *start <= at);
        n.checked_sub(1).and_then(|n| self.0.get(n)).map_or("", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_address() {
        let text =
            "ffffffff81000010 T second\nffffffff81000000 t first\nffffffff81000018 d data\n0 t hidden\n";
        let names = KernelNames::parse(text);
        assert_eq!(names.at(0xffff_ffff_8100_000f), "first");
        assert_eq!(names.at(0xffff_ffff_8100_0020), "second");
        assert_eq!(names.at(0xffff_ffff_80ff_ffff), "");
        assert_eq!(KernelNames::parse("0000000000000000 T a\n").at(1), "");
    }
}

//! The units of debug information, and how their entries refer to each other.
//!
//! Source: DWARF 5, 2.4 (debugging information entries), 3.1 (units), 7.5.5.4 (references).

use crate::image::dwarf::Reader;
use gimli::{AttributeValue, DebuggingInformationEntry, DwAt, Reader as _, UnitOffset};
use std::cell::OnceCell;
use std::collections::HashMap;

/// Chains of copies and declarations that are longer are no compiler's.
const LONGEST_CHAIN: usize = 8;

/// So many units are looked at whose code starts in front of a function.
const NEAR: usize = 8;

/// An entry.
pub type Entry = DebuggingInformationEntry<Reader>;

/// Where an entry is: the number of its unit, and its offset there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Die {
    pub unit: usize,
    pub at: UnitOffset,
}

/// All units.
pub struct Units {
    dwarf: gimli::Dwarf<Reader>,
    all: Vec<Unit>,
    /// Where those in `.debug_info` start, in order; and their numbers.
    starts: Vec<(usize, usize)>,
    /// The code of units, in order, and their numbers.
    code: Vec<(gimli::Range, usize)>,
    /// Units that do not say which code is theirs.
    without_code: Vec<usize>,
    /// Types by their signatures.
    types: HashMap<u64, Die>,
    /// Types that are defined somewhere, by their names with all scopes.
    defined: OnceCell<HashMap<String, Die>>,
}

struct Unit {
    unit: gimli::Unit<Reader>,
    index: OnceCell<Index>,
}

/// What is found in a unit by reading all of it.
#[derive(Default)]
struct Index {
    /// Functions by their entries.
    functions: HashMap<u64, Vec<UnitOffset>>,
    /// Of types and namespaces, the type or namespace around them.
    scopes: HashMap<UnitOffset, UnitOffset>,
    /// Types with a name that are defined here.
    types: Vec<UnitOffset>,
}

impl Units {
    pub fn new(dwarf: gimli::Dwarf<Reader>) -> Units {
        let (mut all, mut starts, mut types) = (Vec::new(), Vec::new(), HashMap::new());
        let (mut code, mut without_code) = (Vec::new(), Vec::new());
        let mut headers = Vec::new();
        let mut of_info = dwarf.units();
        while let Ok(Some(header)) = of_info.next() {
            headers.push(header);
        }
        let mut of_types = dwarf.type_units();
        while let Ok(Some(header)) = of_types.next() {
            headers.push(header);
        }
        for header in headers {
            let n = all.len();
            let start = header.debug_info_offset();
            let of_type = match header.type_() {
                gimli::UnitType::Type { type_signature, type_offset } => Some((type_signature, type_offset)),
                _ => None,
            };
            let Ok(unit) = dwarf.unit(header) else { continue };
            starts.extend(start.map(|at| (at.0, n)));
            if let Some((signature, at)) = of_type {
                types.insert(signature.0, Die { unit: n, at });
            }
            let n_before = code.len();
            if let Ok(mut ranges) = dwarf.unit_ranges(&unit) {
                while let Ok(Some(range)) = ranges.next() {
                    code.push((range, n));
                }
            }
            if code.len() == n_before && of_type.is_none() {
                without_code.push(n);
            }
            all.push(Unit { unit, index: OnceCell::new() });
        }
        starts.sort_unstable();
        code.sort_unstable_by_key(|(range, n)| (range.begin, *n));
        Units { dwarf, all, starts, code, without_code, types, defined: OnceCell::new() }
    }

    pub fn dwarf(&self) -> &gimli::Dwarf<Reader> {
        &self.dwarf
    }

    pub fn unit(&self, die: Die) -> Option<&gimli::Unit<Reader>> {
        self.all.get(die.unit).map(|unit| &unit.unit)
    }

    pub fn entry(&self, die: Die) -> Option<Entry> {
        self.unit(die)?.entry(die.at).ok()
    }

    /// The first entry of the unit that `die` is in.
    pub fn root(&self, die: Die) -> Option<Entry> {
        let unit = self.unit(die)?;
        unit.entry(unit.header.root_offset()).ok()
    }

    /// The functions that are entered at `at`.
    pub fn functions(&self, at: u64) -> Vec<Die> {
        let n = self.code.partition_point(|(range, _)| range.begin <= at);
        // They do not overlap, but where functions that are alike were made one.
        let near = self.code.get(n.saturating_sub(NEAR)..n).unwrap_or_default();
        let near = near.iter().filter(|(range, _)| at < range.end).map(|(_, n)| *n);
        let mut found = Vec::new();
        for n in near.chain(self.without_code.iter().copied()) {
            let Some(unit) = self.all.get(n) else { continue };
            let entries = self.index(unit).functions.get(&at).into_iter().flatten();
            found.extend(entries.map(|at| Die { unit: n, at: *at }));
        }
        found
    }

    fn index<'u>(&self, unit: &'u Unit) -> &'u Index {
        unit.index.get_or_init(|| {
            let mut index = Index::default();
            let mut around: Vec<(isize, UnitOffset, bool)> = Vec::new();
            let mut entries = unit.unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                while around.last().is_some_and(|last| last.0 >= entry.depth()) {
                    around.pop();
                }
                let is_type = is_type_with_name(entry.tag());
                let is_scope = is_type || entry.tag() == gimli::DW_TAG_namespace;
                if is_scope && let Some((_, scope, true)) = around.last() {
                    index.scopes.insert(entry.offset(), *scope);
                }
                let is_named =
                    entry.has_attr(gimli::DW_AT_name) || entry.has_attr(gimli::DW_AT_specification);
                if is_type && is_named && !entry.has_attr(gimli::DW_AT_declaration) {
                    index.types.push(entry.offset());
                }
                if entry.tag() == gimli::DW_TAG_subprogram
                    && let Some(at) = self.starts_at(&unit.unit, entry)
                {
                    index.functions.entry(at).or_default().push(entry.offset());
                }
                if entry.has_children() {
                    around.push((entry.depth(), entry.offset(), is_scope));
                }
            }
            index
        })
    }

    /// Where a function is entered that has code: what the linker left out is at 0, or at the very end.
    fn starts_at(&self, unit: &gimli::Unit<Reader>, entry: &Entry) -> Option<u64> {
        if !entry.has_attr(gimli::DW_AT_low_pc) && !entry.has_attr(gimli::DW_AT_ranges) {
            return None;
        }
        let mut ranges = self.dwarf.die_ranges(unit, entry).ok()?;
        let first = ranges.next().ok()??;
        (first.begin != 0 && first.begin < first.end).then_some(first.begin)
    }

    /// What an attribute refers to.
    pub fn referred(&self, from: Die, value: &AttributeValue<Reader>) -> Option<Die> {
        match value {
            AttributeValue::UnitRef(at) => Some(Die { unit: from.unit, at: *at }),
            AttributeValue::DebugInfoRef(at) => {
                let n = self.starts.partition_point(|start| start.0 <= at.0).checked_sub(1)?;
                let unit = self.starts.get(n)?.1;
                Some(Die { unit, at: at.to_unit_offset(&self.all.get(unit)?.unit.header)? })
            }
            AttributeValue::DebugTypesRef(signature) => self.types.get(&signature.0).copied(),
            _ => None,
        }
    }

    /// An entry, and those that it is a copy or the definition of.
    pub fn chain(&self, die: Die) -> impl Iterator<Item = (Die, Entry)> {
        let first = self.entry(die).map(|entry| (die, entry));
        std::iter::successors(first, |(die, entry)| {
            let of = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification, gimli::DW_AT_signature];
            let to = of.into_iter().find_map(|at| self.referred(*die, &entry.attr_value(at)?))?;
            Some((to, self.entry(to)?))
        })
        .take(LONGEST_CHAIN)
    }

    /// An attribute of an entry, or of those that it is a copy or the definition of; and which one has it.
    pub fn attribute(&self, die: Die, name: DwAt) -> Option<(Die, AttributeValue<Reader>)> {
        self.chain(die).find_map(|(die, entry)| Some((die, entry.attr_value(name)?)))
    }

    /// What such an attribute refers to.
    pub fn reference(&self, die: Die, name: DwAt) -> Option<Die> {
        let (of, value) = self.attribute(die, name)?;
        self.referred(of, &value)
    }

    /// Whether such a flag is set.
    pub fn flag(&self, die: Die, name: DwAt) -> bool {
        matches!(self.attribute(die, name), Some((_, AttributeValue::Flag(true))))
    }

    /// Such an attribute as text.
    pub fn text(&self, die: Die, name: DwAt) -> Option<String> {
        let (of, value) = self.attribute(die, name)?;
        self.string(of, value)
    }

    /// Text.
    pub fn string(&self, of: Die, value: AttributeValue<Reader>) -> Option<String> {
        let text = self.dwarf.attr_string(self.unit(of)?, value).ok()?;
        text.to_string_lossy().ok().map(std::borrow::Cow::into_owned)
    }

    /// The entries right under one.
    pub fn children(&self, die: Die) -> Vec<(Die, Entry)> {
        let mut found = Vec::new();
        let Some(unit) = self.unit(die) else { return found };
        let Ok(mut tree) = unit.entries_tree(Some(die.at)) else { return found };
        let Ok(root) = tree.root() else { return found };
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry().clone();
            found.push((Die { unit: die.unit, at: entry.offset() }, entry));
        }
        found
    }

    /// The namespaces and types around a type, `a::b::`, as C++ and Rust write them.
    pub fn scope(&self, die: Die) -> String {
        // Of a type that is defined elsewhere than declared, it is the declaration that stands in a scope.
        let last = self.chain(die).last().map_or(die, |(die, _)| die);
        let Some(unit) = self.all.get(last.unit) else { return String::new() };
        let scopes = &self.index(unit).scopes;
        let around = std::iter::successors(scopes.get(&last.at), |at| scopes.get(at)).take(64);
        let mut names: Vec<String> = around
            .map(|at| {
                let name = self.text(Die { unit: last.unit, at: *at }, gimli::DW_AT_name);
                name.unwrap_or_else(|| "(anonymous namespace)".to_owned()) + "::"
            })
            .collect();
        names.reverse();
        names.concat()
    }

    /// Where a type that is only declared here is defined, if it is.
    pub fn definition(&self, declared: Die) -> Option<Die> {
        let name = self.text(declared, gimli::DW_AT_name)?;
        let defined = self.defined.get_or_init(|| {
            let mut all = HashMap::new();
            for (n, unit) in self.all.iter().enumerate() {
                for at in &self.index(unit).types {
                    let die = Die { unit: n, at: *at };
                    let Some(name) = self.text(die, gimli::DW_AT_name) else { continue };
                    all.entry(self.scope(die) + &name).or_insert(die);
                }
            }
            all
        });
        defined.get(&(self.scope(declared) + &name)).copied()
    }
}

fn is_type_with_name(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
    )
}

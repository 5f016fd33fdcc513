//! What functions take and return, by debug information.
//!
//! Compilers keep to the ABI wherever others may call a function. Of others they make what they like: copies
//! with fewer parameters, whose symbols say so (gcc), or the function itself (clang). There it is known only
//! where debug information says that a parameter is in a register, or on the stack, at the very entry.
//!
//! *Not here*: where the ABI has values (`arch::abi::arguments`).
//!
//! Source: DWARF 5, 3.3 (subroutine entries), 4.1 (parameters), 2.6 (locations).
#![warn(clippy::indexing_slicing)]

mod kinds;
mod places;
mod units;

use super::{Float, Parameter, Signature, Type};
use crate::addr::Va;
use crate::arch::abi::arguments::{Passing, Piece, passing};
use crate::image::{Image, dwarf};
use gimli::AttributeValue;
use kinds::{Kinds, Language};
use units::{Die, Units};

/// What is known of the functions of an image. For use by one thread.
pub struct Signatures {
    units: Units,
    kinds: Kinds,
}

/// What is known of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// What it takes and returns, as its source has it.
    pub signature: Signature,
    /// Whether arguments and result are where the ABI has them.
    pub is_c_abi: bool,
    /// Of each parameter the pieces that debug information knows at the function's entry; none of those that
    /// it does not.
    pub at_entry: Vec<Vec<Piece>>,
}

impl Described {
    /// Where arguments and result are, as far as that is known: no pieces where it is not.
    pub fn passing(&self) -> Passing {
        if self.is_c_abi {
            return passing(&self.signature);
        }
        Passing { parameters: self.at_entry.clone(), ..Passing::default() }
    }
}

/// A parameter: where it is described, and where that is for this very code.
struct Listed {
    of: Die,
    own: Option<Die>,
}

impl Signatures {
    /// Those that the debug information of `image`, or of its debug file, describes; none, if there is none.
    pub fn load(image: &Image) -> Option<Signatures> {
        let dwarf = dwarf::load(image, &[".debug_info", ".debug_abbrev"])?;
        Some(Signatures { units: Units::new(dwarf), kinds: Kinds::new() })
    }

    /// What is known of the function that is entered at `entry`, and whose symbols are `names`.
    pub fn at(&self, entry: Va, names: &[Box<str>]) -> Option<Described> {
        let all = self.units.functions(entry.0);
        // Functions that came out alike may have been made one.
        let bears =
            |die: &&Die| self.linkage_name(**die).is_some_and(|name| names.iter().any(|n| **n == *name));
        let die = *all.iter().find(bears).or(all.first())?;
        let language = Language::of(&self.units, die);
        if language == Language::Other {
            return None;
        }
        self.described(die, language, entry, names)
    }

    fn linkage_name(&self, die: Die) -> Option<String> {
        self.units
            .text(die, gimli::DW_AT_linkage_name)
            .or_else(|| self.units.text(die, gimli::DW_AT_MIPS_linkage_name))
            .or_else(|| self.units.text(die, gimli::DW_AT_name))
    }

    fn described(&self, die: Die, language: Language, entry: Va, names: &[Box<str>]) -> Option<Described> {
        let units = &self.units;
        let (listed, is_variadic) = self.parameters(die);
        let is_without_prototype = language == Language::C && !units.flag(die, gimli::DW_AT_prototyped);
        let (mut parameters, mut at_entry) = (Vec::new(), Vec::new());
        let mut is_whole = true;
        for (n, Listed { of, own }) in listed.iter().enumerate() {
            let name = units.text(*of, gimli::DW_AT_name).filter(|name| !name.is_empty());
            let name = name.unwrap_or_else(|| format!("a{n}"));
            let to = units.reference(*of, gimli::DW_AT_type);
            let mut kind = to.and_then(|to| self.kinds.of(units, to, language));
            if is_without_prototype && kind == Some(Type::Float(Float::Single)) {
                // Callers pass a `double` then (C17, 6.5.2.2).
                kind = Some(Type::Float(Float::Double));
            }
            if let Some(to) = to
                && language == Language::Fortran
                && !self.is_by_value(*of, *own)
            {
                kind = Some(Type::Pointer(Box::new(self.kinds.name(units, to, language))));
            }
            if let (None, Some(to), Some(own)) = (&kind, to, *own)
                && language == Language::Cpp
                && places::is_behind_pointer(units, own)
            {
                // A class that is defined elsewhere, and passed by reference.
                kind = Some(Type::Pointer(Box::new(self.kinds.name(units, to, language))));
            }
            is_whole &= kind.is_some();
            let kind = kind.unwrap_or_else(|| match to {
                Some(to) => self.kinds.name(units, to, language),
                None => Type::Void,
            });
            let pieces = own.and_then(|own| places::at_entry(units, own, kind.size(), die, entry.0));
            at_entry.push(pieces.unwrap_or_default());
            parameters.push(Parameter { name, kind, reads: Vec::new() });
        }
        let result = match units.reference(die, gimli::DW_AT_type) {
            None => Some(Type::Void),
            Some(to) => self.kinds.of(units, to, language),
        };
        is_whole &= result.is_some();
        let result = result.unwrap_or(Type::Void);
        let name = self.linkage_name(die)?;
        let signature = Signature { name, parameters, result, result_reads: Vec::new(), is_variadic };
        let mut described = Described { signature, is_c_abi: false, at_entry };
        described.is_c_abi = is_whole
            && self.has_usual_convention(die)
            && !names.iter().any(|name| is_clone(name))
            && match language {
                Language::Rust => is_as_c(&described.signature),
                _ => true,
            }
            && self.is_kept(die, &listed, &described);
        Some(described)
    }

    /// The parameters of a function, and whether more may follow.
    fn parameters(&self, die: Die) -> (Vec<Listed>, bool) {
        let listed = |of: Die| {
            let mut all = Vec::new();
            let mut is_variadic = false;
            for (child, entry) in self.units.children(of) {
                match entry.tag() {
                    gimli::DW_TAG_formal_parameter => all.push(child),
                    gimli::DW_TAG_GNU_formal_parameter_pack => {
                        let pack = self.units.children(child).into_iter();
                        all.extend(
                            pack.filter(|(_, e)| e.tag() == gimli::DW_TAG_formal_parameter)
                                .map(|(die, _)| die),
                        );
                    }
                    gimli::DW_TAG_unspecified_parameters => is_variadic = true,
                    _ => {}
                }
            }
            // Which constructor it is, is told to none that is compiled.
            all.retain(|die| self.units.text(*die, gimli::DW_AT_name).as_deref() != Some("__in_chrg"));
            (all, is_variadic)
        };
        let (own, is_variadic) = listed(die);
        let origin = self
            .units
            .entry(die)
            .and_then(|entry| self.units.referred(die, &entry.attr_value(gimli::DW_AT_abstract_origin)?));
        let Some(origin) = origin else {
            return (own.into_iter().map(|die| Listed { of: die, own: Some(die) }).collect(), is_variadic);
        };
        let (of, of_is_variadic) = listed(origin);
        let is_variadic = is_variadic || of_is_variadic;
        // Tables of virtual bases are passed to some copies of a constructor alone.
        let of: Vec<Die> = of
            .into_iter()
            .filter(|die| self.units.text(*die, gimli::DW_AT_name).as_deref() != Some("__vtt_parm"))
            .collect();
        if own.len() > of.len() {
            return (own.into_iter().map(|die| Listed { of: die, own: Some(die) }).collect(), is_variadic);
        }
        let copy_of = |of: Die| {
            let is_it = |own: &&Die| self.units.chain(**own).any(|(die, _)| die == of);
            own.iter().find(is_it).copied()
        };
        (of.into_iter().map(|die| Listed { of: die, own: copy_of(die) }).collect(), is_variadic)
    }

    /// Whether a parameter of Fortran is its value itself, and no reference to it.
    fn is_by_value(&self, of: Die, own: Option<Die>) -> bool {
        let to = self.units.reference(of, gimli::DW_AT_type).and_then(|to| self.units.entry(to));
        let is_pointer = to
            .is_some_and(|to| matches!(to.tag(), gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type));
        // The lengths of texts, which compilers add.
        let is_length = self.units.flag(of, gimli::DW_AT_artificial)
            && self.units.text(of, gimli::DW_AT_name).is_some_and(|name| name.starts_with('_'));
        is_pointer || is_length || own.is_some_and(|own| places::is_direct(&self.units, own))
    }

    fn has_usual_convention(&self, die: Die) -> bool {
        match self.units.attribute(die, gimli::DW_AT_calling_convention) {
            None => true,
            Some((_, AttributeValue::CallingConvention(convention))) => matches!(
                convention,
                // The last one: LLVM's for this very ABI.
                gimli::DW_CC_normal | gimli::DW_CC_program | gimli::DwCc(0xc2)
            ),
            Some(_) => false,
        }
    }

    /// Whether no compiler has made something else of the function, as far as debug information shows it.
    fn is_kept(&self, die: Die, listed: &[Listed], described: &Described) -> bool {
        let by_abi = passing(&described.signature).parameters;
        // How long they are does not matter: what is padding is in one of them. What is not passed at all,
        // such as classes without members, g++ has on the stack.
        let places = |pieces: &Vec<Piece>| pieces.iter().map(|p| (p.place, p.at)).collect::<Vec<_>>();
        let differs = |(said, abi): (&Vec<Piece>, &Vec<Piece>)| {
            !said.is_empty() && !abi.is_empty() && places(said) != places(abi)
        };
        if described.at_entry.iter().zip(&by_abi).any(differs) {
            return false;
        }
        let root = self.units.root(die);
        let producer = root.and_then(|root| self.units.string(die, root.attr_value(gimli::DW_AT_producer)?));
        let is_internal = !self.units.flag(die, gimli::DW_AT_external);
        if !is_internal || !producer.is_some_and(|producer| producer.contains("clang")) {
            return true;
        }
        // LLVM takes parameters and results away that nobody uses, if all callers are known.
        let is_optimised =
            !listed.iter().all(|one| one.own.is_some_and(|own| places::is_in_frame(&self.units, own)));
        !is_optimised || described.at_entry.iter().all(|pieces| !pieces.is_empty())
    }
}

/// Whether gcc has changed what the function with this symbol takes or returns.
fn is_clone(symbol: &str) -> bool {
    [".isra.", ".constprop.", ".part."].iter().any(|what| symbol.contains(what))
}

/// Whether Rust passes all of this as C does: the function has no name of Rust's, and it takes and returns
/// scalars alone.
fn is_as_c(signature: &Signature) -> bool {
    let is_scalar = |kind: &Type| !matches!(kind, Type::Record(_) | Type::Array { .. } | Type::Vector { .. });
    let is_mangled = signature.name.starts_with("_ZN") || signature.name.starts_with("_R");
    !is_mangled && signature.parameters.iter().map(|p| &p.kind).chain([&signature.result]).all(is_scalar)
}

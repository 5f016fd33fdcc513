//! Prototypes of C as users write them, and as headers have them: names, types, what is to be read of memory.
//!
//! Beyond C, `name:str` behind a parameter (or behind the closing parenthesis, for the result) asks for the
//! text that it points to; [`Prototypes::read`] for other memory.
//!
//! Not here: where a call passes what is declared (`program::arch::abi::arguments`); signatures from debug
//! information (`program::signature`).

mod known;
pub mod library;
mod parser;
mod reads;
mod tokens;

use parser::{Parser, Scope};
use program::signature::{Read, Signature};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
pub use tokens::Position;

/// A function that a text declares.
#[derive(Clone, Debug)]
pub struct Prototype {
    /// What it takes and returns.
    pub signature: Signature,
    /// The file that declares it, where the preprocessor says so.
    pub file: Option<Arc<str>>,
}

/// All functions that a text declares, and the types that it declares with them.
#[derive(Debug)]
pub struct Prototypes {
    /// In order; of several for one name, the last.
    pub functions: Vec<Prototype>,
    /// What of a header was not understood; nothing else is affected.
    pub skipped: Vec<PrototypeError>,
    scope: Scope,
}

/// Why a prototype, or what is to be read, was not understood.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the variants and their fields are")]
pub enum PrototypeError {
    #[error("{at}: {got} where {want} should stand")]
    Unexpected { at: Position, got: String, want: String },
    #[error("{at}: the type `{name}` is not known")]
    UnknownType { at: Position, name: String },
    #[error("{at}: `{words}` is no type that a value can have here")]
    NoType { at: Position, words: String },
    #[error("{at}: nothing is declared: a name is missing")]
    Nameless { at: Position },
    #[error("{at}: nested more than {most} deep")]
    Nested { at: Position, most: u32 },
    #[error("{at}: larger than any object can be")]
    TooLarge { at: Position },
    #[error("{at}: the bit-field `{name}` does not fit its type")]
    NoBits { at: Position, name: String },
    #[error("{at}: `{name}` keeps to another calling convention than the System V ABI's")]
    Convention { at: Position, name: String },
    #[error("{at}: `{name}` is a {kind}, which points to no text")]
    NoPointer { at: Position, name: String, kind: String },
    #[error("no function is declared in `{text}`")]
    NoFunction { text: String },
    #[error("`{request}` of {function}: {why}")]
    Read { request: String, function: String, why: String },
    #[error("cannot read {}", path.display())]
    Header { path: PathBuf, source: std::io::Error },
    #[error("the C preprocessor refused {}: {said}", path.display())]
    Preprocessor { path: PathBuf, said: String },
}

impl PrototypeError {
    /// What helps.
    pub fn hint(&self) -> Option<String> {
        match self {
            PrototypeError::UnknownType { name, .. }
                if name.starts_with("struct ") || name.starts_with("union ") =>
            {
                Some(format!("declare it in front: {name} {{ …; }};"))
            }
            PrototypeError::UnknownType { name, .. } if name.starts_with("enum ") => {
                Some(format!("declare it in front: {name} {{ …, }};"))
            }
            PrototypeError::UnknownType { name, .. } => {
                Some(format!("declare it in front: typedef … {name}; or give its header with --header"))
            }
            PrototypeError::Nameless { .. } | PrototypeError::NoFunction { .. } => {
                Some("a prototype looks like this: double exp(double x);".to_owned())
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}:{}:{}", self.line, self.column),
            None => write!(f, "line {}, column {}", self.line, self.column),
        }
    }
}

impl Prototypes {
    /// The functions that a text declares, with the usual types of the C library known.
    ///
    /// # Errors
    /// If anything in it is not understood, with its place; if no function is declared.
    pub fn parse(text: &str) -> Result<Prototypes, PrototypeError> {
        let prototypes = Prototypes::of(text, false)?;
        if prototypes.functions.is_empty() {
            let text = text.trim().chars().take(60).collect();
            return Err(PrototypeError::NoFunction { text });
        }
        Ok(prototypes)
    }

    /// The functions that a header declares, those of the headers that it includes too: by `cc -E`, if there
    /// is a C compiler, else as it stands. What is not understood is passed over, and listed.
    ///
    /// # Errors
    /// If the file cannot be read, or the preprocessor says so.
    pub fn load_header(path: &Path) -> Result<Prototypes, PrototypeError> {
        let text = std::fs::read(path);
        let text = text.map_err(|source| PrototypeError::Header { path: path.to_owned(), source })?;
        // A name that begins as options do must not be taken for one.
        let given = if path.is_absolute() { path.to_owned() } else { Path::new(".").join(path) };
        match Command::new("cc").args(["-E", "-x", "c", "-D_GNU_SOURCE"]).arg(given).output() {
            Ok(out) if out.status.success() => Prototypes::of(&String::from_utf8_lossy(&out.stdout), true),
            Ok(out) => {
                let said = String::from_utf8_lossy(&out.stderr);
                let said = said.lines().find(|l| l.contains("error")).or(said.lines().next());
                let said = said.unwrap_or("it gave no reason").to_owned();
                Err(PrototypeError::Preprocessor { path: path.to_owned(), said })
            }
            Err(_) => Prototypes::of(&String::from_utf8_lossy(&text), true),
        }
    }

    /// The same with other declarations in front, such as those of headers: their types are known then.
    ///
    /// # Errors
    /// As [`Prototypes::parse`].
    pub fn parse_with(&self, text: &str) -> Result<Prototypes, PrototypeError> {
        let mut parser = Parser::new(text, self.scope.clone());
        parser.all(false)?;
        if parser.found.is_empty() {
            let text = text.trim().chars().take(60).collect();
            return Err(PrototypeError::NoFunction { text });
        }
        Ok(Prototypes { functions: parser.found, skipped: parser.skipped, scope: parser.scope })
    }

    fn of(text: &str, is_lenient: bool) -> Result<Prototypes, PrototypeError> {
        let mut parser = Parser::new(text, known::scope()?);
        parser.all(is_lenient)?;
        Ok(Prototypes { functions: parser.found, skipped: parser.skipped, scope: parser.scope })
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Signature> {
        self.functions.iter().map(|p| &p.signature).find(|s| s.name == name)
    }

    /// Has memory read with each call of the function: `*p`, `p->field`, `p->next->n`, `p[3]`, `p[0..4]` (a
    /// value each), `(*p)[2].x`, `p->name:str`; `return` is the result.
    ///
    /// # Errors
    /// [`PrototypeError::Read`], if there is no such parameter or field, or it leads to nothing whose type is
    /// known. The signature is as it was then.
    pub fn read(&self, signature: &mut Signature, request: &str) -> Result<(), PrototypeError> {
        let (of, reads) = self.reads(signature, request)?;
        match of {
            Some(n) => signature.parameters[n].reads.extend(reads),
            None => signature.result_reads.extend(reads),
        }
        Ok(())
    }

    /// What a request reads, and by which parameter; none is the result.
    fn reads(
        &self,
        signature: &Signature,
        request: &str,
    ) -> Result<(Option<usize>, Vec<Read>), PrototypeError> {
        reads::reads(&self.scope, signature, request).map_err(|why| PrototypeError::Read {
            request: request.to_owned(),
            function: signature.name.clone(),
            why,
        })
    }
}

#[cfg(test)]
mod tests;

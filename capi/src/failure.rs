//! What a call of the library comes to: a status, and for each thread what was said of its last failure.

use live::OpenError;
use live::attach::AttachError;
use session::{IpcError, PassingsError, ReplaceError, RunningError, StoreError};
use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What came of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// A pointer is NULL that must not be, or a number is out of its range.
    Argument = 1,
    /// A text is not UTF-8.
    Text = 2,
    /// There is no such process, or no more.
    Gone = 3,
    /// The process has no such function or place.
    NotFound = 4,
    /// The kernel, the process, or its code does not allow it. The process is as it was.
    Refused = 5,
    /// A file cannot be read, written or used.
    File = 6,
    /// Nothing came: no sample, or no call.
    Nothing = 7,
    /// It is done but for a part: something of ours is still in the process.
    Left = 8,
    /// A mistake of the library itself.
    Internal = 9,
}

/// Why a call failed: what was tried, on what, and what can be done.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// Of that kind; `message` says what was tried, and on what.
    pub fn new(status: Status, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into(), hint: None }
    }

    /// The same, with what can be done.
    pub fn with_hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// A pointer is NULL.
    pub fn null(what: &str) -> Failure {
        Failure::new(Status::Argument, format!("{what} is NULL"))
            .with_hint("look at what the call that made it returned")
    }

    /// An error of that kind with its causes, and its remedy.
    fn of(status: Status, err: &dyn Error, hint: Option<String>) -> Failure {
        let (mut message, mut cause) = (err.to_string(), err.source());
        while let Some(err) = cause {
            message = format!("{message}: {err}");
            cause = err.source();
        }
        Failure { status, message, hint }
    }

    /// The message, and the remedy on a line of its own.
    fn text(&self) -> CString {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("\nhint: {hint}"));
        // Names of files have no zeros; whatever has, ends there.
        let text = format!("{}{hint}", self.message);
        let text = text.split('\0').next().unwrap_or_default();
        CString::new(text).unwrap_or_default()
    }
}

fn of_attach(err: &AttachError) -> Status {
    if err.is_over() || matches!(err, AttachError::Ended { .. }) { Status::Gone } else { Status::Refused }
}

impl From<AttachError> for Failure {
    fn from(err: AttachError) -> Failure {
        Failure::of(of_attach(&err), &err, err.hint())
    }
}

fn of_running(err: &RunningError) -> Status {
    match err {
        RunningError::Attach(err) => of_attach(err),
        _ => Status::Refused,
    }
}

impl From<RunningError> for Failure {
    fn from(err: RunningError) -> Failure {
        Failure::of(of_running(&err), &err, err.hint())
    }
}

impl From<OpenError> for Failure {
    fn from(err: OpenError) -> Failure {
        let status = match err {
            OpenError::Ended { .. } => Status::Gone,
            OpenError::TooOften { .. } => Status::Argument,
            _ => Status::Refused,
        };
        Failure::of(status, &err, err.hint())
    }
}

impl From<StoreError> for Failure {
    fn from(err: StoreError) -> Failure {
        let hint = "name a folder that can be written";
        Failure::of(Status::File, &err, Some(hint.to_owned()))
    }
}

impl From<IpcError> for Failure {
    fn from(err: IpcError) -> Failure {
        let status = match &err {
            IpcError::Running(err) => of_running(err),
            IpcError::NotGivenBack { .. } => Status::Left,
            IpcError::File { .. } | IpcError::Read(_) => Status::File,
            _ => Status::Refused,
        };
        Failure::of(status, &err, err.hint())
    }
}

impl From<ReplaceError> for Failure {
    fn from(err: ReplaceError) -> Failure {
        let status = match &err {
            ReplaceError::Attach(err) => of_attach(err),
            ReplaceError::Graft(_) | ReplaceError::NoSymbol { .. } => Status::File,
            _ => Status::Refused,
        };
        Failure::of(status, &err, err.hint())
    }
}

impl From<PassingsError> for Failure {
    fn from(err: PassingsError) -> Failure {
        let status = match &err {
            PassingsError::Running(err) => of_running(err),
            PassingsError::Place { .. } => Status::NotFound,
            PassingsError::NotGivenBack { .. } => Status::Left,
            _ => Status::Refused,
        };
        Failure::of(status, &err, err.hint())
    }
}

thread_local! {
    /// What was said of this thread's last failure; empty, if there was none.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Passes what was said of this thread's last failure to `whom`.
pub fn last<T>(whom: impl FnOnce(&CStr) -> T) -> T {
    LAST.with_borrow(|text| whom(text))
}

/// What `work` comes to, also if it panics: no panic may go on into code that is not Rust's.
pub fn guarded(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    match caught(work) {
        Ok(()) => Status::Ok,
        Err(status) => status,
    }
}

/// The same of what has a value, `none` if it fails.
pub fn guarded_or<T>(none: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    caught(work).unwrap_or(none)
}

fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Status> {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(of_panic(&*panic)));
    done.map_err(|failure| {
        // A thread that is ending may have no such memory any more; nobody asks for the text then.
        let _kept = LAST.try_with(|last| last.replace(failure.text()));
        failure.status
    })
}

fn of_panic(panic: &(dyn Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason");
    Failure::new(Status::Internal, format!("a mistake in the library: {said}"))
        .with_hint("report it, with the program; free what this call was given, and use it no more")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> String {
        last(|text| text.to_string_lossy().into_owned())
    }

    #[test]
    fn no_panic_gets_out() {
        assert_eq!(guarded(|| panic!("of {}", 7)), Status::Internal);
        assert!(said().starts_with("a mistake in the library: of 7\nhint: "), "{}", said());
        assert_eq!(guarded_or(3, || panic!("plain")), 3);
        assert!(said().starts_with("a mistake in the library: plain"), "{}", said());
        assert_eq!(guarded(|| Ok(())), Status::Ok);
    }

    #[test]
    fn each_thread_has_its_own_last_failure() {
        assert_eq!(guarded(|| Err(Failure::null("function"))), Status::Argument);
        let other = std::thread::spawn(|| {
            let before = said();
            let status = guarded(|| Err(Failure::new(Status::File, "cannot read a\0b")));
            (before, status, said())
        });
        let other = other.join().expect("it does not panic");
        assert_eq!(other, (String::new(), Status::File, "cannot read a".to_owned()));
        assert_eq!(said(), "function is NULL\nhint: look at what the call that made it returned");
    }
}

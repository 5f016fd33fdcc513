//! Where signals come, what they end, and handlers that lead elsewhere.

use super::module_codes::ModuleFunction;
use super::{Decoder, MOST_INSIDE, Observation, Part};
use crate::decode::region::Border;
use crate::ids::BlockId;
use crate::recording::event::SignalPlace;
use crate::recording::module_code::SiteTold;
use crate::symbol::Symbol;

/// What is entered next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Next {
    /// What follows from where control is.
    #[default]
    Onward,
    /// A signal handler, from where control is.
    Handler,
    /// Where a signal handler has led to, wherever that is.
    Elsewhere,
    /// A signal handler, from where another has led to.
    HandlerElsewhere,
}

impl Next {
    pub(super) fn is_handler(self) -> bool {
        matches!(self, Next::Handler | Next::HandlerElsewhere)
    }

    pub(super) fn is_elsewhere(self) -> bool {
        matches!(self, Next::Elsewhere | Next::HandlerElsewhere)
    }

    /// A signal came.
    fn interrupted(self) -> Next {
        if self.is_elsewhere() { Next::HandlerElsewhere } else { Next::Handler }
    }

    /// No handler is entered.
    fn without_handler(self) -> Next {
        if self.is_elsewhere() { Next::Elsewhere } else { Next::Onward }
    }

    /// An event tells where control is.
    pub(super) fn arrived(self) -> Next {
        if self.is_handler() { Next::Handler } else { Next::Onward }
    }
}

/// What is known of signals, and of what they end.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Whether the last word was room that nothing was written into.
    pub(super) is_unwritten: bool,
    /// Of which block the call that was not over is where a signal came last, if it is one.
    in_call: Option<(ModuleFunction, BlockId)>,
    /// Whether what is entered next is entered by a jump out of a signal handler.
    pub(super) hands_on: bool,
    /// Whether a signal has ended the thread where it is.
    pub(super) has_ended: bool,
}

impl Decoder<'_> {
    /// A signal came at a place of the moved code, and its handler is entered next.
    pub(super) fn interrupted(&mut self, key: u32, place: SignalPlace, out: &mut Vec<u32>) {
        (self.next, self.signals.in_call) = (self.next.interrupted(), None);
        let at = match place {
            SignalPlace::Ours => None,
            SignalPlace::InCall(at) => Some((Part::Call, at)),
            SignalPlace::At(at) if self.signals.is_unwritten => Some((Part::Event, at)),
            SignalPlace::At(at) => Some((Part::Any, at)),
        };
        let observed = at.and_then(|(part, at)| {
            self.codes.placed(key, at).map(|(of, block)| Observation::In { of, block, part })
        });
        if self.next.is_elsewhere() {
            // Nobody knows where.
        } else if let Some((observed, found)) =
            observed.and_then(|observed| Some((observed, self.find(observed).ok()?)))
        {
            if let Observation::In { of, block, part: Part::Call } = observed {
                self.signals.in_call = Some((of, block));
            }
            self.approach(found, observed, out);
        } else if key == 0 || observed.is_some() {
            // In what is not recorded: it was called. If a call is told, it is one that was over.
            self.settle(0, false, out);
        }
    }

    /// A signal ended the thread, where the one before came, if that `is_placed`: if that was in a call, what
    /// is called was entered. Nothing is told of what is behind.
    pub(super) fn ended(&mut self, is_placed: bool, out: &mut Vec<u32>) {
        (self.signals.has_ended, self.next) = (true, self.next.without_handler());
        let place = self.signals.in_call.take().filter(|_| is_placed);
        let Some(top) = self.stack.open.last().filter(|top| place == Some((top.function, top.block))) else {
            return;
        };
        let (of, block, call) = (top.function, top.block, top.call);
        let site = self.codes.block(of, block).and_then(|b| b.calls.get(call as usize));
        match site.map(|site| (site.told, site.stub)) {
            // Of several of these, it is the first or one behind it.
            Some((SiteTold::Nothing, stub)) => self.codes.through(of.module, stub, out),
            _ if self.pass_border(Border::Call { block, call }, out) => {}
            _ => self.pass_stub(out),
        }
    }

    /// The handler that was entered last returns, to what is entered next.
    pub(super) fn redirected(&mut self, out: &mut Vec<u32>) {
        // One that is not recorded was entered by nobody.
        let is_recorded = !self.next.is_handler();
        if let Some(n) = self.stack.open.iter().rposition(|a| a.is_handler).filter(|_| is_recorded) {
            // It goes to its end, and what is below it stays where it was.
            for _ in 0..MOST_INSIDE {
                if self.stack.open.len() <= n || !self.pass_end(out) {
                    break;
                }
            }
            let n_left = self.stack.open.leave_from(n);
            out.extend((0..n_left).map(|_| Symbol::EXIT.0));
        }
        self.next = Next::Elsewhere;
    }
}

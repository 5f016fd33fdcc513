//! Where signals come, what they end, and handlers that lead elsewhere.

use super::{Decoder, MOST_INSIDE, Part, Told};
use crate::decode::region::Border;
use crate::recording::code::SiteTold;
use crate::recording::event::SignalPlace;
use crate::symbol::Symbol;

impl Decoder<'_> {
    /// A signal came at a place of the moved code, and its handler is entered next.
    pub(super) fn interrupted(&mut self, key: u32, place: SignalPlace, out: &mut Vec<u32>) {
        (self.is_handler, self.in_call) = (true, None);
        let at = match place {
            SignalPlace::Ours => None,
            SignalPlace::InCall(at) => Some((Part::Call, at)),
            SignalPlace::At(at) if self.is_unwritten => Some((Part::Event, at)),
            SignalPlace::At(at) => Some((Part::Any, at)),
        };
        let told = at.and_then(|(part, at)| {
            self.codes.placed(key, at).map(|(of, block)| Told::In { of, block, part })
        });
        if self.is_elsewhere {
            // Nobody knows where.
        } else if let Some((told, found)) = told.and_then(|told| Some((told, self.find(told)?))) {
            if let Told::In { of, block, part: Part::Call } = told {
                self.in_call = Some((of, block));
            }
            self.approach(found, told, out);
        } else if key == 0 || told.is_some() {
            // In what is not recorded: it was called. If a call is told, it is one that was over.
            self.settle(0, false, out);
        }
    }

    /// A signal ended the thread, where the one before came, if that `is_placed`: if that was in a call, what
    /// is called was entered. Nothing is told of what is behind.
    pub(super) fn ended(&mut self, is_placed: bool, out: &mut Vec<u32>) {
        (self.has_ended, self.is_handler) = (true, false);
        let place = self.in_call.take().filter(|_| is_placed);
        let Some(top) = self.open.last().filter(|top| place == Some((top.of, top.block))) else { return };
        let (of, block, call) = (top.of, top.block, top.call);
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
        let is_recorded = !std::mem::take(&mut self.is_handler);
        if let Some(n) = self.open.iter().rposition(|a| a.is_handler).filter(|_| is_recorded) {
            // It goes to its end, and what is below it stays where it was.
            for _ in 0..MOST_INSIDE {
                if self.open.len() <= n || !self.pass_end(out) {
                    break;
                }
            }
            out.extend(self.open.drain(n..).map(|_| Symbol::EXIT.0));
        }
        self.is_elsewhere = true;
    }
}

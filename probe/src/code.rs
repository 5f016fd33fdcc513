//! Code of ours that is put into a program, and what the distances in it lead to.
//!
//! Not here: where it goes (`inserts`), who fills the distances in (`module`).

use crate::arch::emit::{Increment, Stack};
use program::Va;

/// Code to be put in.
#[derive(Clone, Default, Debug)]
pub struct Insert {
    /// What comes first; nearly all code is an increment alone.
    pub text: Option<Box<Text>>,
    /// The increment of this counter behind all that.
    pub increment: Option<(Increment, u32)>,
}

/// Code with what its places lead to.
#[derive(Clone, Default, Debug)]
pub struct Text {
    /// The code.
    pub bytes: Vec<u8>,
    /// Offset of a distance, end of its instruction, and where it leads.
    pub places: Vec<(usize, usize, Target)>,
    /// Where the stack pointer moves: offset of the next instruction, and where the stack is from there on.
    pub stack: Vec<(usize, Stack)>,
    /// The old start of the block that whoever comes to it may go to instead.
    pub instead_of: Option<Va>,
    /// How far from its start is what is to be well aligned in it, if something is.
    pub aligned: Option<usize>,
}

impl Insert {
    /// Code of ours.
    pub(crate) fn text(bytes: Vec<u8>, places: Vec<(usize, usize, Target)>) -> Insert {
        Insert { increment: None, text: Some(Box::new(Text { bytes, places, ..Text::default() })) }
    }

    /// Code of ours that does what the block that was at `block` would do, and leads there for the rest; what
    /// is at `aligned` in it goes round.
    pub(crate) fn instead_of(block: Va, (bytes, aligned): (Vec<u8>, usize)) -> Insert {
        let text = Text { bytes, instead_of: Some(block), aligned: Some(aligned), ..Text::default() };
        Insert { increment: None, text: Some(Box::new(text)) }
    }

    /// How many bytes its text has.
    pub(crate) fn len(&self) -> usize {
        let increment = self.increment.map_or(0, |(how, _)| {
            let mut bytes = Vec::new();
            let _places = how.emit(&mut bytes).count();
            bytes.len()
        });
        self.text.as_ref().map_or(0, |text| text.bytes.len()) + increment
    }

    /// The increment of a counter.
    pub(crate) fn increment(how: Increment, counter: u32) -> Insert {
        Insert { increment: Some((how, counter)), text: None }
    }

    /// The increment of a word of the thread's memory, by its number among all.
    pub(crate) fn increment_of_word(how: Increment, word: u32) -> Insert {
        let mut text = Text::default();
        text.increment(how, Target::Word(word));
        Insert { increment: None, text: Some(Box::new(text)) }
    }

    /// `n` added to such a word.
    pub(crate) fn addition_to_word(how: Increment, mut n: u32, word: u32) -> Insert {
        let mut text = Text::default();
        while n > 0 {
            let some = u8::try_from(n).map_or(Increment::MOST, |n| n.min(Increment::MOST));
            text.addition(how, some, Target::Word(word));
            n -= u32::from(some);
        }
        Insert { increment: None, text: Some(Box::new(text)) }
    }

    pub(crate) fn append(&mut self, other: Insert) {
        let text = self.text.get_or_insert_default();
        if let Some((how, counter)) = self.increment.take() {
            text.increment(how, Target::Counter(counter));
        }
        self.increment = other.increment;
        let Some(other) = other.text else { return };
        let base = text.bytes.len();
        text.stack.extend(other.stack.into_iter().map(|(at, stack)| (base + at, stack)));
        text.bytes.extend(other.bytes);
        text.places.extend(other.places.into_iter().map(|(at, end, to)| (base + at, base + end, to)));
    }
}

impl Text {
    /// Writes an increment.
    fn increment(&mut self, how: Increment, counter: Target) {
        self.addition(how, 1, counter);
    }

    fn addition(&mut self, how: Increment, n: u8, counter: Target) {
        let base = self.bytes.len();
        self.stack.extend(how.stack().iter().map(|&(at, stack)| (base + at, stack)));
        self.places.extend(how.emit_adding(n, &mut self.bytes).map(|(at, end)| (at, end, counter)));
    }
}

/// Four bytes that hold a distance, to be filled in.
#[derive(Clone, Copy, Debug)]
pub struct Fixup {
    /// Their offset in the piece.
    pub at: u32,
    /// Offset of the end of the instruction: distances count from there.
    pub end: u32,
    /// Where to.
    pub to: Target,
}

/// What a distance leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Code at this old address: its moved copy, if it was moved.
    Code(Va),
    /// The same, for who is in the function already.
    Inside(Va),
    /// This address, whatever is there.
    Address(Va),
    /// The start of the moved code.
    Text,
    /// Its end.
    TextEnd,
    /// This counter, a word of the thread's own memory.
    Counter(u32),
    /// This word of the thread's own memory, behind the counters.
    Word(u32),
    /// The routine for indirect calls that do not lead where they led first.
    IndirectCall,
    /// The routine that takes another chunk for events.
    Chunk,
    /// The routine of this probe.
    Routine(u32),
    /// The byte that says whether the library has started.
    Started,
    /// Where a thread goes that comes to a signal handler.
    Signal,
    /// The word that names the owner of the counters.
    Owner,
    /// Where a thread goes that is not their owner.
    Slow,
    /// Where a thread goes before a call that ends the process, or makes another program of it.
    Leave,
    /// The same behind a call of `vfork`.
    Vforked,
    /// The same before a call that ends the process by SIGABRT.
    Abort,
    /// The same behind such a call that came back.
    Back,
    /// The same before a call that says whether the thread may be cancelled anywhere.
    Cancel,
}

/// For whom there is code in front of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// Who comes from outside of the function.
    Outside,
    /// The same from old code: it is checked whose counters these are.
    Checked,
    /// Exceptions that are raised in the block that starts here.
    Pad(Va),
    /// The jump at this address.
    Table(Va),
    /// Who comes from the block that starts here, and may go to the block itself instead.
    From(Va),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::listing;
    use expect_test::expect;
    use program::arch::Reg;

    /// A jump to `to`.
    fn jump(to: u64) -> Insert {
        let mut code = Insert::text(vec![0xe9, 0, 0, 0, 0], vec![(1, 5, Target::Address(Va(to)))]);
        code.text.as_mut().expect("it has some").stack = vec![(5, Stack::Lower(8))];
        code
    }

    #[test]
    fn code_behind_code_leads_where_it_did() {
        let mut code = Insert::default();
        let parts = [
            jump(1),
            Insert::increment(Increment::Spilled, 7),
            jump(2),
            Insert::increment(Increment::Through(Reg::general(9)), 8),
            Insert::increment(Increment::Flags, 9),
        ];
        let len: usize = parts.iter().map(Insert::len).sum();
        parts.into_iter().for_each(|part| code.append(part));
        assert_eq!((code.len(), code.increment), (len, Some((Increment::Flags, 9))));
        let text = code.text.expect("it has some");
        // Each place is in the instruction whose end it counts from.
        let note = |from: usize, to: usize| {
            let inside = text.places.iter().filter(|place| from < place.0 && place.1 == to);
            let leads: Vec<String> =
                inside.map(|place| format!(" # {:?} at {:02x}", place.2, place.0)).collect();
            let stack = text.stack.iter().filter(|stack| stack.0 == to);
            leads.concat() + &stack.map(|stack| format!(" # {:?}", stack.1)).collect::<String>()
        };
        expect![[r#"
            00: jmp 0x5 # Address(0x1) at 01 # Lower(8)
            05: lea -0x80(%rsp),%rsp # Lower(128)
            0a: push %rax # Lower(136)
            0b: mov %gs:0x13,%rax # Counter(7) at 0f
            13: lea 0x1(%rax),%rax
            17: mov %rax,%gs:0x1f # Counter(7) at 1b
            1f: pop %rax # Lower(128)
            20: lea 0x80(%rsp),%rsp # Lower(0)
            28: jmp 0x2d # Address(0x2) at 29 # Lower(8)
            2d: mov %gs:0x35,%r9 # Counter(8) at 31
            35: lea 0x1(%r9),%r9
            39: mov %r9,%gs:0x41 # Counter(8) at 3d
        "#]]
        .assert_eq(&listing(&text.bytes, Va(0), note));
    }
}

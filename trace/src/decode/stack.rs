//! What is open in a stream: on the stack of its thread, and on others.

use super::activation::Activation;
use std::collections::HashMap;

/// Functions that are open.
#[derive(Debug, Default)]
pub(super) struct Stack {
    /// On the stack that control is on, the outermost first.
    pub(super) open: Vec<Activation>,
    /// On other stacks, when control went to one that was left before.
    pub(super) parked: Vec<Vec<Activation>>,
    /// Where streams may have gone on in another process.
    pub(super) forked: Forked,
}

/// What was open where streams may have gone on in another process: by module, point and stack pointer.
#[derive(Debug, Default)]
pub struct Forked(pub(super) HashMap<(usize, u32, u32), Vec<Activation>>);

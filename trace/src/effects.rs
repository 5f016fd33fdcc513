//! What strings of blocks do to an automaton: from each state to which state, and how many occurrences more than from the first state.
//!
//! Effects are interned, and products remembered: of a path there are few, so that composing two is a look-up. This is what the paper's
//! prefix, suffix and internal flags say (section 4.2), for any automaton.

use crate::automaton::{Automaton, State};
use std::collections::HashMap;

/// The number of an effect.
pub type EffectId = u32;
/// The effect of the empty string.
pub const NOTHING: EffectId = 0;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Effect {
    to: Vec<State>,
    /// Occurrences that end in the string, beyond those that also begin in it.
    more: Vec<u32>,
}

/// The effects of an automaton.
pub struct Effects {
    all: Vec<Effect>,
    ids: HashMap<Effect, EffectId>,
    products: Vec<Vec<(EffectId, u32)>>,
    of_class: Vec<(EffectId, u32)>,
}

const UNKNOWN: EffectId = EffectId::MAX;

impl Effects {
    /// Those of single blocks; others as they come up.
    pub fn new(automaton: &Automaton) -> Self {
        let n = automaton.n_states();
        let states = || (0..n).map(|p| State::try_from(p).expect("an automaton has fewer states"));
        let mut this =
            Self { all: Vec::new(), ids: HashMap::new(), products: Vec::new(), of_class: Vec::new() };
        this.intern(Effect { to: states().collect(), more: vec![0; n] });
        for class in 0..automaton.n_classes() {
            let class = u16::try_from(class).expect("an automaton has fewer classes");
            let to: Vec<State> = states().map(|p| automaton.next(p, class)).collect();
            let alone = u32::from(automaton.accepts(to[0]));
            let more = to.iter().map(|&q| u32::from(automaton.accepts(q)) - alone).collect();
            let id = this.intern(Effect { to, more });
            this.of_class.push((id, alone));
        }
        this
    }

    fn intern(&mut self, effect: Effect) -> EffectId {
        if let Some(&id) = self.ids.get(&effect) {
            return id;
        }
        let id = EffectId::try_from(self.all.len()).expect("fewer than there are strings");
        self.ids.insert(effect.clone(), id);
        self.all.push(effect);
        self.products.push(Vec::new());
        id
    }

    /// The effect of a block of this class, and whether it is an occurrence by itself.
    #[inline]
    pub fn of_class(&self, class: u16) -> (EffectId, u32) {
        self.of_class[usize::from(class)]
    }

    /// The effect of `a` followed by `b`, and how many occurrences end in `b` that begin in `a`.
    #[inline]
    pub fn then(&mut self, a: EffectId, b: EffectId) -> (EffectId, u32) {
        if a == NOTHING {
            return (b, 0);
        }
        if b == NOTHING {
            return (a, 0);
        }
        match self.products[a as usize].get(b as usize) {
            Some(&product) if product.0 != UNKNOWN => product,
            _ => self.multiply(a, b),
        }
    }

    #[cold]
    fn multiply(&mut self, a: EffectId, b: EffectId) -> (EffectId, u32) {
        let (first, second) = (&self.all[a as usize], &self.all[b as usize]);
        let gained = second.more[usize::from(first.to[0])];
        let to = first.to.iter().map(|&p| second.to[usize::from(p)]).collect();
        let more =
            first.to.iter().zip(&first.more).map(|(&p, more)| more + second.more[usize::from(p)] - gained);
        let effect = Effect { to, more: more.collect() };
        let id = self.intern(effect);
        let row = &mut self.products[a as usize];
        if row.len() <= b as usize {
            row.resize(b as usize + 1, (UNKNOWN, 0));
        }
        row[b as usize] = (id, gained);
        (id, gained)
    }

    /// The state behind a string that starts in `state`, and the occurrences that end in it but begin before it.
    #[inline]
    pub fn from(&self, state: State, effect: EffectId) -> (State, u32) {
        let effect = &self.all[effect as usize];
        (effect.to[usize::from(state)], effect.more[usize::from(state)])
    }
}

//! What strings of blocks do to an automaton: from each state to which state, and how many occurrences more
//! than from the first state.
//!
//! Effects are interned, and products remembered: of a path there are few, so that composing two is a
//! look-up. This is what the paper's prefix, suffix and internal flags say (section 4.2), for any automaton.

use crate::search::automaton::{Automaton, State};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// The number of an effect.
pub type EffectId = u32;
/// The effect of the empty string.
pub const NOTHING: EffectId = 0;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Effect {
    to: Vec<State>,
    /// Occurrences that end in the string, beyond those that also begin in it.
    more: Vec<u64>,
}

/// The effects of an automaton.
pub struct Effects {
    all: Vec<Rc<Effect>>,
    ids: HashMap<Rc<Effect>, EffectId>,
    /// Products of the first effects, by both: those of most paths are all among them.
    products: Vec<Vec<(EffectId, u64)>>,
    /// Products of others. A path with gaps has as many effects as there are rules, and few of their products
    /// come up.
    rare: HashMap<u64, (EffectId, u64), BuildHasherDefault<Mixer>>,
    of_class: Vec<(EffectId, u64)>,
}

const UNKNOWN: EffectId = EffectId::MAX;
/// Effects below this one have a table of products.
const MOST_DENSE: EffectId = 512;

/// Mixes the numbers of two effects.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, n: u64) {
        let product = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

impl Effects {
    /// Those of single blocks; others as they come up.
    pub fn new(automaton: &Automaton) -> Self {
        let n = automaton.n_states();
        let states = || (0..n).map(|p| State::try_from(p).expect("an automaton has fewer states"));
        let mut this = Self {
            all: Vec::new(),
            ids: HashMap::new(),
            products: Vec::new(),
            rare: HashMap::default(),
            of_class: Vec::new(),
        };
        this.intern(Effect { to: states().collect(), more: vec![0; n] });
        for class in 0..automaton.n_classes() {
            let class = u16::try_from(class).expect("an automaton has fewer classes");
            let to: Vec<State> = states().map(|p| automaton.next(p, class)).collect();
            let alone = u64::from(automaton.accepts(to[0]));
            let more = to.iter().map(|&q| u64::from(automaton.accepts(q)) - alone).collect();
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
        let effect = Rc::new(effect);
        self.ids.insert(Rc::clone(&effect), id);
        self.all.push(effect);
        if id < MOST_DENSE {
            self.products.push(Vec::new());
        }
        id
    }

    /// The effect of a block of this class, and whether it is an occurrence by itself.
    #[inline]
    pub fn of_class(&self, class: u16) -> (EffectId, u64) {
        self.of_class[usize::from(class)]
    }

    /// The effect of `a` followed by `b`, and how many occurrences end in `b` that begin in `a`.
    #[inline]
    pub fn then(&mut self, a: EffectId, b: EffectId) -> (EffectId, u64) {
        if a == NOTHING {
            return (b, 0);
        }
        if b == NOTHING {
            return (a, 0);
        }
        match self.products.get(a as usize).and_then(|row| row.get(b as usize)) {
            Some(&product) if product.0 != UNKNOWN => product,
            _ => self.multiply(a, b),
        }
    }

    #[cold]
    fn multiply(&mut self, a: EffectId, b: EffectId) -> (EffectId, u64) {
        let is_dense = a < MOST_DENSE && b < MOST_DENSE;
        let pair = u64::from(a) << 32 | u64::from(b);
        if !is_dense && let Some(&product) = self.rare.get(&pair) {
            return product;
        }
        let (first, second) = (&self.all[a as usize], &self.all[b as usize]);
        let gained = second.more[usize::from(first.to[0])];
        let to = first.to.iter().map(|&p| second.to[usize::from(p)]).collect();
        // What a state adds in the second is never less than what the first state does: it stands for more
        // beginnings.
        let more = first.to.iter().zip(&first.more);
        let more = more
            .map(|(&p, more)| more.saturating_add(second.more[usize::from(p)].saturating_sub(gained)))
            .collect();
        let product = (self.intern(Effect { to, more }), gained);
        if !is_dense {
            self.rare.insert(pair, product);
            return product;
        }
        let row = &mut self.products[a as usize];
        if row.len() <= b as usize {
            row.resize(b as usize + 1, (UNKNOWN, 0));
        }
        row[b as usize] = product;
        product
    }

    /// The state behind a string that starts in `state`, and the occurrences that end in it but begin before
    /// it.
    #[inline]
    pub fn from(&self, state: State, effect: EffectId) -> (State, u64) {
        let effect = &self.all[effect as usize];
        (effect.to[usize::from(state)], effect.more[usize::from(state)])
    }
}

//! What follows from one function's flow graph: computed on demand, each a value of its own.

pub mod dominators;
pub mod flow_graph;
pub mod liveness;
pub mod loops;
pub mod mixes;
pub mod own_code;
pub mod purity;
pub mod resolvers;
pub mod stack_arguments;
pub mod waste;

//! Code of shared objects, laid out and bound.

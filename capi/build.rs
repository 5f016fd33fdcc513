//! Gives the shared library its name, by which programs that are linked against it ask for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libengraft.so");
}

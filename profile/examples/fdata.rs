fn main() {
    let a: Vec<String> = std::env::args().collect();
    let p = program::Program::analyze(program::Image::load(a[1].as_ref()).unwrap());
    let (prof, lost) = profile::fdata::parse(&std::fs::read(&a[2]).unwrap(), &p).unwrap();
    eprintln!("read: entries {} blocks {} edges {} calls {} out {}", prof.entries.len(), prof.blocks.len(), prof.edges.len(), prof.calls.len(), prof.calls_out.len());
    let s: u64 = lost.iter().map(|l| l.count).sum();
    eprintln!("lost reading {s} in {}", lost.len());
    for l in &lost { eprintln!("  {} {} {}", l.what, l.why, l.count); }
    let w = profile::fdata::write(&prof, &p);
    let s: u64 = w.lost.iter().map(|l| l.count).sum();
    eprintln!("written {} functions {}; lost {s}", w.count, w.n_functions);
    for l in &w.lost { eprintln!("  {} {} {}", l.what, l.why, l.count); }
    std::fs::write(&a[3], w.bytes).unwrap();
}

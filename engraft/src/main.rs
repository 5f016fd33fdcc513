//! The command.
fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| anyhow::anyhow!("usage: engraft FILE"))?;
    let program = program::Program::analyze(program::Image::load(path.as_ref())?);
    anstream::println!(
        "{} functions, {} blocks, {} edges",
        program.functions.len(),
        program.blocks.len(),
        program.edges.len()
    );
    Ok(())
}

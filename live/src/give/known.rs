//! What a process knows of itself while it is observed.

use crate::shared::Arena;
use probe::Segments;
use probe::arch::shared::{Home, Process, Thread};
use probe::offset;
use program::{Bias, LiveVa, Va};

/// What process `pid`, whose first thread has the area `area`, knows of itself and of the `modules` that are
/// in it, each at its bias: [`Process`].
pub(crate) fn process_of<'a>(
    pid: i32,
    modules: impl IntoIterator<Item = (&'a Segments, Bias)>,
    arena: &Arena,
    area: u64,
) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<Process>()];
    let mut set = |at: u64, value: u64| {
        let at = usize::try_from(at).expect("small");
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    let pid = u64::try_from(pid).expect("process numbers are positive");
    set(offset!(Process, number), pid);
    if arena.knows_namespace() {
        // It need not ask what it is called, which filters of its own might forbid.
        set(offset!(Process, name), pid);
        set(offset!(Process, inherited_name), 1);
    }
    set(offset!(Process, mapped), arena.mapped_len());
    set(offset!(Process, n_threads), 1);
    set(offset!(Process, threads) + offset!(Thread, area), area);
    for (segments, bias) in modules {
        if let Some(runtime) = segments.runtime_at
            && let Some((n, _)) = arena.row(segments.key)
        {
            let home = offset!(Process, homes) + Home::LEN * n as u64;
            for (field, place) in home_of(segments, bias, runtime) {
                set(home + field, place.0);
            }
        }
    }
    bytes
}

/// What the process keeps of a module at `bias`, whose runtime is at `runtime`: fields of [`Home`].
fn home_of(segments: &Segments, bias: Bias, runtime: u64) -> [(u64, LiveVa); 6] {
    let live = |at: u64| bias.to_live(Va(at));
    [
        (offset!(Home, at), live(segments.counters_at)),
        (offset!(Home, runtime), live(runtime)),
        (offset!(Home, text), live(segments.text_at)),
        (offset!(Home, text_end), live(runtime)),
        (offset!(Home, old), live(segments.old.start)),
        (offset!(Home, old_end), live(segments.old.end)),
    ]
}

//! Tests of sampling: what records say, and events that are opened anew.

use super::*;

fn words(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn numbers() -> HashMap<u64, Number> {
    let number = |event, time| Number { event, stack: 24, time };
    HashMap::from([(70, number(0, 0..u64::MAX)), (71, number(1, 50..150)), (73, number(1, Number::NEVER))])
}

#[test]
fn a_sample_is_read() {
    let body = words(&[71, 0x1000, 6 << 32 | 5, 99, 250]);
    let read = sample(&body, &numbers(), false).expect("it is one");
    assert_eq!((read.event, read.at, read.process, read.thread), (1, LiveVa(0x1000), 5, 6));
    assert_eq!((read.time, read.period, read.user), (99, 250, None));
    assert_eq!(sample(&words(&[72, 0x1000, 0, 0, 0]), &numbers(), false), None);
    // Of a time when others told, or of events that are opened.
    for (number, time) in [(71, 49), (71, 150), (73, 99)] {
        let body = words(&[number, 0x1000, 0, time, 0]);
        assert_eq!(sample(&body, &numbers(), false), None, "{number} {time}");
    }
}

#[test]
fn a_chain_and_a_stack_are_read_up_to_what_was_copied() {
    let (kernel, user) = (perf::PERF_CONTEXT_KERNEL, perf::PERF_CONTEXT_USER);
    let head = [70, 0xffff_8000_0000_0000, 6 << 32 | 5, 99, 250];
    let chain = [4, kernel, 0xffff_8000_0000_0000, user, 0x40];
    let stack = [2, 0x7000, 0x6ff0, 0x40, 24, 1, 2, 3, 16];
    let body = words(&[&head[..], &chain, &stack].concat());
    let read = sample(&body, &numbers(), true).expect("it is one");
    assert_eq!(read.kernel, [0xffff_8000_0000_0000]);
    let user = UserStack { at: LiveVa(0x40), sp: 0x6ff0, bp: 0x7000, bytes: words(&[1, 2]) };
    assert_eq!(read.user, Some(user));
    // Of every length that is cut, nothing or less.
    for n in 0..body.len() {
        assert_eq!(sample(&body[..n], &numbers(), true), None, "{n}");
    }
    // A thread of the kernel.
    let body = words(&[&head[..], &[0], &[0, 0]].concat());
    assert_eq!(sample(&body, &numbers(), true).map(|s| s.user), Some(None));
}

#[test]
fn more_is_copied_from_one_moment_on() {
    let own = i32::try_from(std::process::id()).expect("small");
    let (chains, rate) = (Some(Chains { stack: 1 << 10 }), Rate::Hertz(2000));
    let wanted = Wanted { events: vec![Event::clock()], rate, chains };
    let mut sampling = Sampling::start(&[own], wanted).expect("we may sample ourselves");
    let threads = std::sync::Mutex::new(Vec::new());
    let work = || {
        threads.lock().expect("nobody panicked").push(nix::unistd::gettid().as_raw().cast_unsigned());
        let deep = std::hint::black_box([1u8; 1 << 14]);
        let until = thread_times().1 + 50_000_000;
        while thread_times().1 < until {
            std::hint::black_box(&deep);
        }
    };
    work();
    sampling.change(1 << 13, rate).expect("as before");
    // Also in threads that begin later.
    std::thread::scope(|scope| drop(scope.spawn(work).join()));
    sampling.change(1 << 12, rate).expect("as before");
    work();
    sampling.stop();
    let threads = threads.into_inner().expect("nobody panicked");
    let mut copied: Vec<(u64, usize)> = Vec::new();
    for heard in sampling.take_rest() {
        if let Heard::Sample(Sample { time, thread, user: Some(user), .. }) = heard
            && threads.contains(&thread)
        {
            copied.push((time, user.bytes.len()));
        }
    }
    let mut lens: Vec<usize> = copied.iter().map(|one| one.1).collect();
    for len in [1 << 10, 1 << 13, 1 << 12] {
        assert!(lens.iter().filter(|one| **one == len).count() > 20, "{copied:?}");
    }
    lens.dedup();
    assert_eq!(lens, [1 << 10, 1 << 13, 1 << 12]);
    // Of one processor's time, so many; twice as many if two told of the same.
    assert!(copied.len() < 2 * 300, "{}", copied.len());
}

#[test]
fn records_of_processes_are_read() {
    let of = |kind, misc, body: &[u8]| heard(&Record { kind, misc, body }, &numbers(), false);
    let trailer = words(&[6 << 32 | 5, 77, 70]);
    let mapped =
        [words(&[6 << 32 | 5, 0x4000, 0x1000, 0x200, 0, 12, 0, 5]), b"/a/b.so\0".to_vec(), trailer.clone()];
    let range = LiveVa(0x4000)..LiveVa(0x5000);
    let want = Heard::Mapped { process: 5, range, offset: 0x200, inode: 12, path: "/a/b.so".into() };
    assert_eq!(of(perf::PERF_RECORD_MMAP2, 0, &mapped.concat()), Some((77, want)));
    let began = [words(&[4 << 32 | 5, 3 << 32 | 6, 0]), trailer.clone()].concat();
    let want = Heard::Began { process: 5, thread: 6, parent: 4, maker: 3 };
    assert_eq!(of(perf::PERF_RECORD_FORK, 0, &began), Some((77, want)));
    let ended = [words(&[4 << 32 | 5, 3 << 32 | 6, 0]), trailer.clone()].concat();
    let want = Heard::Ended { process: 5, thread: 6 };
    assert_eq!(of(perf::PERF_RECORD_EXIT, 0, &ended), Some((77, want)));
    let named = [words(&[6 << 32 | 5]), b"name\0\0\0\0".to_vec(), trailer.clone()].concat();
    let want = |is_exec| Heard::Named { process: 5, thread: 6, name: "name".into(), is_exec };
    assert_eq!(of(perf::PERF_RECORD_COMM, 0, &named), Some((77, want(false))));
    assert_eq!(of(perf::PERF_RECORD_COMM, 0x2000, &named), Some((77, want(true))));
    let lost = [words(&[70, 9]), trailer].concat();
    assert_eq!(of(perf::PERF_RECORD_LOST, 0, &lost), Some((77, Heard::Lost(9))));
    assert_eq!(of(perf::PERF_RECORD_LOST, 0, &lost[..20]), None);
}

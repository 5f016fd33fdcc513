//! PADRONE's two clients, in C.

use crate::{Server, client, folder, here, must, needs};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// Figures 5 and 7.
#[test]
fn the_clients_are_twenty_lines() {
    for name in ["hot_ipc.c", "replace_hot.c"] {
        let text = std::fs::read_to_string(here().join("examples").join(name)).expect("it is there");
        let main = text.lines().skip_while(|line| !line.starts_with("int main"));
        let n = main.filter(|line| !line.is_empty()).count();
        assert!((10..=20).contains(&n), "{name}: {n} lines");
    }
}

/// Figure 6. The oracles: the program's symbols, and its source, which has one loop.
#[test]
fn the_calls_of_the_hot_function_are_measured() {
    needs!("gcc", "nm");
    let place = folder();
    let mut server = Server::start(place.path());
    let said = must(client(place.path(), "examples/hot_ipc.c").arg(server.pid()));
    let lines: Vec<&str> = said.lines().collect();
    let [samples, ip, function, graph, calls @ ..] = &lines[..] else { panic!("{said}") };
    let symbols = must(Command::new("nm").arg(place.path().join("server")));
    let hot = symbols.lines().find_map(|line| line.strip_suffix(" T hot")).expect("it has a symbol");
    let hot = u64::from_str_radix(hot, 16).expect("an address");
    assert_eq!(*function, format!("function address = {hot:#x} (hot)"));
    let n = samples.strip_prefix("number of samples: ").unwrap_or_else(|| panic!("{said}"));
    let ip = ip.strip_prefix("most frequent ip = 0x").unwrap_or_else(|| panic!("{said}"));
    let ip = u64::from_str_radix(ip, 16).expect("an address");
    assert!(n.parse::<u64>().expect("a number") > 20, "{said}");
    assert!((hot..hot + 64).contains(&ip), "{said}");
    assert!(graph.ends_with(" blocks, 1 loops"), "{said}");

    let ipc = calls.iter().map(|line| line.strip_prefix("hot: ipc = ")?.parse::<f64>().ok());
    let ipc: Vec<f64> = ipc.collect::<Option<_>>().unwrap_or_else(|| panic!("{said}"));
    // Where a call was disturbed so much that its cycles may be none, it is not a number.
    let known: Vec<f64> = ipc.iter().copied().filter(|ipc| !ipc.is_nan()).collect();
    assert!(ipc.len() == 10 && known.len() >= 5, "{said}");
    assert!(known.iter().all(|ipc| (0.05..10.0).contains(ipc)), "{said}");
    assert_eq!(server.result(), "1000");
    server.end();
}

/// Ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// Figure 8. The oracles: what the program says of its own sums, and what its process was given.
#[test]
fn vectors_are_added_by_other_code_from_some_step_on() {
    needs!("gcc");
    let features = std::fs::read_to_string("/proc/cpuinfo").expect("Linux has it");
    if !features.split_whitespace().any(|feature| feature == "avx") {
        // No tool, and nothing that could be installed.
        eprintln!("this processor has no AVX: nothing was tested");
        return;
    }
    let place = folder();
    let program = place.path().join("vecadd");
    must(Command::new("gcc").args(["-O3", "-o"]).arg(&program).arg(here().join("examples/vecadd.c")));
    let mut vecadd = Ends(Command::new(program).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut lines = BufReader::new(vecadd.0.stdout.take().expect("a pipe")).lines();
    let mut step = || lines.next().expect("it goes on").expect("text");
    let first = step();
    let said = must(client(place.path(), "examples/replace_hot.c").arg(vecadd.0.id().to_string()));
    assert_eq!(said, "vecadd is replaced\n");
    let pid = i32::try_from(vecadd.0.id()).expect("small");
    let (standing, is_back) = session::standing(pid).expect("it can be looked at");
    assert!(standing.len() == 1 && standing[0].function == "vecadd" && !is_back, "{standing:?}");
    // The client is gone; what it said meanwhile is in the pipe. What comes behind is of the new code.
    let known: Vec<String> = (0..60).map(|_| step()).collect();
    for (n, line) in (0..).zip(std::iter::once(&first).chain(&known)) {
        let is_step = |line: &str| {
            let rest = line.strip_prefix(&format!("redstep: {n} "))?.strip_suffix(" ns per iter")?;
            let (ms, ns) = rest.split_once(" ms ")?;
            Some(ms.parse::<f64>().is_ok() && ns.parse::<f64>().is_ok())
        };
        assert_eq!(is_step(line), Some(true), "{line}");
    }
    eprintln!("{first}\n…\n{}", known.last().expect("there are some"));
}

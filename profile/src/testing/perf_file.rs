//! perf.data files written byte by byte: what `perf record -j any,u` writes, on machines that have no branch
//! stacks too.
//!
//! Source: Linux, `tools/perf/Documentation/perf.data-file-format.txt`; `include/uapi/linux/perf_event.h`
//! (perf_event_attr, PERF_RECORD_MMAP2, PERF_RECORD_SAMPLE).

/// A file in the making: its records.
#[derive(Clone, Default)]
pub struct PerfFile {
    records: Vec<u8>,
    time: u64,
}

const IP: u64 = 1;
const TID: u64 = 2;
const TIME: u64 = 4;
const PERIOD: u64 = 0x100;
const BRANCH_STACK: u64 = 0x800;

impl PerfFile {
    pub fn new() -> PerfFile {
        PerfFile::default()
    }

    fn record(mut self, kind: u32, misc: u16, body: &[u8]) -> PerfFile {
        self.records.extend(kind.to_le_bytes());
        self.records.extend(misc.to_le_bytes());
        let len = u16::try_from(body.len() + 8).expect("records are short");
        self.records.extend(len.to_le_bytes());
        self.records.extend(body);
        self
    }

    /// A file of code mapped into a process: `len` bytes from `offset` on.
    pub fn mapped(
        self,
        pid: u32,
        start: u64,
        len: u64,
        offset: u64,
        build_id: Option<&[u8]>,
        path: &str,
    ) -> PerfFile {
        let mut body = Vec::new();
        body.extend(pid.to_le_bytes());
        body.extend(pid.to_le_bytes());
        for word in [start, len, offset] {
            body.extend(word.to_le_bytes());
        }
        let mut id = [0u8; 24];
        if let Some(build_id) = build_id {
            id[0] = u8::try_from(build_id.len()).expect("at most 20 bytes");
            id[4..4 + build_id.len()].copy_from_slice(build_id);
        }
        body.extend(id);
        // Readable and executable, private.
        body.extend(5u32.to_le_bytes());
        body.extend(2u32.to_le_bytes());
        body.extend(path.as_bytes());
        body.extend(std::iter::repeat_n(0, 8 - path.len() % 8));
        // User mode; whether the build-id stands in place of device and inode.
        self.record(10, 2 | if build_id.is_some() { 1 << 14 } else { 0 }, &body)
    }

    /// A sample in user mode with its branches (from, to, mispredicted), the last one first.
    pub fn sample(mut self, pid: u32, ip: u64, branches: &[(u64, u64, bool)]) -> PerfFile {
        self.time += 1000;
        let mut body = Vec::new();
        body.extend(ip.to_le_bytes());
        body.extend(pid.to_le_bytes());
        body.extend(pid.to_le_bytes());
        for word in [self.time, 1, branches.len() as u64] {
            body.extend(word.to_le_bytes());
        }
        for &(from, to, missed) in branches {
            for word in [from, to, if missed { 1 } else { 2 }] {
                body.extend(word.to_le_bytes());
            }
        }
        self.record(9, 2, &body)
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        const HEADER: u64 = 104;
        const ATTR: u64 = 112;
        let mut file = b"PERFILE2".to_vec();
        let data = HEADER + ATTR + 16;
        // Header's size; an attribute with the place of its ids; where attributes, data and event types are;
        // features.
        let len = self.records.len() as u64;
        for word in [HEADER, ATTR + 16, HEADER, ATTR + 16, data, len, 0, 0, 0, 0, 0, 0] {
            file.extend(word.to_le_bytes());
        }
        // perf_event_attr: hardware, cycles; period 1; fields of samples; mmap, comm, mmap2.
        file.extend(0u32.to_le_bytes());
        file.extend(112u32.to_le_bytes());
        let fields = IP | TID | TIME | PERIOD | BRANCH_STACK;
        for word in [0, 1, fields, 0, 1 << 8 | 1 << 9 | 1 << 23, 0, 0, 0, 9, 0, 0, 0, 0] {
            file.extend(u64::to_le_bytes(word));
        }
        // It has no ids.
        file.extend([0; 16]);
        file.extend(&self.records);
        file
    }
}

//! Held against `go tool pprof` 1.19: what it wrote is read, what it shows of our file is what is in it.

use super::*;
use crate::testing::compile;

/// _start: 0 test, 2 je →9, 4 call leaf, 9 jmp 9; leaf, at b: nop, nop, ret. At a fixed address.
fn program() -> Program {
    let text = ".globl _start\n.type _start,@function\n_start: test %edi,%edi\nje 1f\ncall leaf\n1: jmp 1b\n\
                .size _start,.-_start\n.type leaf,@function\nleaf: nop\nnop\nret\n.size leaf,.-leaf\n";
    let flags = ["-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x401000", "-Wl,--build-id=none"];
    compile(text, "s", &flags)
}

fn counted(program: &Program, times: u64) -> Profile {
    let blocks = [(0x40_1000, 100), (0x40_1004, 60), (0x40_100b, 60)];
    Profile {
        image: ImageRef::of(&program.image),
        blocks: blocks.into_iter().map(|(at, n)| (Va(at), times * n)).collect(),
        ..Profile::default()
    }
}

fn unpacked(bytes: &[u8]) -> File {
    let mut raw = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut raw).unwrap();
    File::decode(raw.as_slice()).unwrap()
}

fn packed(file: &File) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(&file.encode_to_vec()).unwrap();
    gz.finish().unwrap()
}

#[test]
fn what_pprof_merged_of_two_of_ours_is_read_as_twice_the_counts() {
    let program = program();
    // `go tool pprof -proto -output=merged.pb.gz p.pb.gz p.pb.gz`, p.pb.gz what is written of `counted`.
    let (profile, lost) = parse(include_bytes!("merged.pb.gz"), &program).unwrap();
    assert_eq!((profile, lost), (counted(&program, 2), vec![]));
}

#[test]
fn values_and_places_are_those_that_pprof_shows() {
    let program = program();
    let written = write(&counted(&program, 1), &program);
    assert_eq!((written.count, written.n_functions, written.lost), (220, 2, vec![]));
    let file = unpacked(&written.bytes);
    let string = |i: i64| file.string_table[usize::try_from(i).unwrap()].as_str();
    // `go tool pprof -raw`: "100 200: 1", "60 60: 2", "60 180: 3" of executions and instructions.
    let samples: Vec<_> =
        file.sample.iter().map(|s| (s.value.as_slice(), s.location_id.as_slice())).collect();
    assert_eq!(samples, [(&[100, 200][..], &[1][..]), (&[60, 60], &[2]), (&[60, 180], &[3])]);
    let types: Vec<_> = file.sample_type.iter().map(|t| (string(t.r#type), string(t.unit))).collect();
    assert_eq!(types, [("executions", "count"), ("instructions", "count")]);
    // "1: 0x401000 M=1 _start", "2: 0x401004 M=1 _start", "3: 0x40100b M=1 leaf".
    let name = |l: &Location| {
        let id = usize::try_from(l.line[0].function_id).unwrap();
        string(file.function[id - 1].name).to_owned()
    };
    let places: Vec<_> = file.location.iter().map(|l| (l.address, l.mapping_id, name(l))).collect();
    let want = [(0x40_1000, "_start"), (0x40_1004, "_start"), (0x40_100b, "leaf")];
    assert_eq!(places, want.map(|(at, name)| (at, 1, name.to_owned())));
    // "1: 0x401000/0x40100e/0x1000 output [FN]".
    let m = &file.mapping[0];
    assert_eq!((m.memory_start, m.memory_limit, m.file_offset), (0x40_1000, 0x40_100e, 0x1000));
    assert!(string(m.filename).ends_with("/output") && m.has_functions && !m.has_line_numbers);
    assert_eq!(string(0), "", "the first string is empty, by the format");
}

#[test]
fn a_process_that_lay_elsewhere_is_read_by_offsets_and_other_images_are_lost() {
    let program = program();
    let mut file = unpacked(&write(&counted(&program, 1), &program).bytes);
    let bias = 0x5600_0000_0000;
    file.mapping[0].memory_start += bias;
    file.mapping[0].memory_limit += bias;
    file.location.iter_mut().for_each(|l| l.address += bias);
    assert_eq!(parse(&packed(&file), &program).unwrap().0, counted(&program, 1));
    // The last one in a library; the one before it between functions.
    let library = Mapping {
        id: 2,
        filename: i64::try_from(file.string_table.len()).unwrap(),
        ..file.mapping[0].clone()
    };
    file.string_table.push("/lib/libc.so.6".to_owned());
    file.mapping.push(library);
    file.location[2].mapping_id = 2;
    file.location[1].address = bias + 0x40_1fff;
    let (profile, lost) = parse(&packed(&file), &program).unwrap();
    assert_eq!(profile.blocks, [(Va(0x40_1000), 100)].into());
    let lost: Vec<_> = lost.iter().map(|l| (l.what.as_str(), l.count)).collect();
    assert_eq!(lost, [("code outside of functions", 60), ("other images", 60)]);
    // Of samples that are no executions the first value is taken, and they are samples.
    file.string_table.iter_mut().filter(|s| *s == EXECUTIONS).for_each(|s| *s = "samples".to_owned());
    let (profile, _) = parse(&packed(&file), &program).unwrap();
    assert_eq!((profile.blocks[&Va(0x40_1000)], profile.exactness), (100, Exactness::Sampled));
}

#[test]
fn what_is_of_another_program_or_unpacks_to_too_much_is_refused() {
    let program = program();
    let mut file = unpacked(&write(&counted(&program, 1), &program).bytes);
    let name = file.string_table.iter_mut().find(|s| s.ends_with("/output")).unwrap();
    "/x/another".clone_into(name);
    let err = parse(&packed(&file), &program).unwrap_err().to_string();
    assert!(err.ends_with("output: it is of /x/another"), "{err}");
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    (0..=LARGEST >> 20).for_each(|_| gz.write_all(&zeros).unwrap());
    let err = parse(&gz.finish().unwrap(), &program).unwrap_err().to_string();
    assert!(err.contains("it unpacks to more than 128 MB"), "{err}");
}

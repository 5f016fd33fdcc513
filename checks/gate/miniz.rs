// What gate.sh runs of miniz_oxide: FILE deflated at several levels, and inflated again.
use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};
use miniz_oxide::inflate::{decompress_to_vec, decompress_to_vec_zlib};
fn main() {
    let text = std::fs::read(std::env::args().nth(1).unwrap()).unwrap();
    let text = &text[..200_000.min(text.len())];
    for level in [0, 1, 4, 6, 9] {
        let packed = compress_to_vec(text, level);
        println!("{level}: {} {}", packed.len(), decompress_to_vec(&packed).map_or(0, |t| t.len()));
    }
    let mut packed = compress_to_vec_zlib(text, 6);
    println!("zlib: {} {:?}", packed.len(), decompress_to_vec_zlib(&packed).map(|t| t.len()).is_ok());
    packed[5000] ^= 4;
    println!("damaged: {}", decompress_to_vec_zlib(&packed).is_ok());
}

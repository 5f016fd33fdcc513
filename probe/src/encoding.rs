//! Long lists as bytes: they are read and written as fast as memory is, not an element at a time. For
//! `#[serde(with = "crate::encoding::rows")]` and `…::patches`.

/// An element: so many words of four bytes.
pub(crate) trait Row<const N: usize> {
    /// Its words.
    fn to_words(&self) -> [u32; N];
    /// The one that has these words.
    fn of_words(words: [u32; N]) -> Self;
}

impl Row<1> for u32 {
    fn to_words(&self) -> [u32; 1] {
        [*self]
    }

    fn of_words([word]: [u32; 1]) -> u32 {
        word
    }
}

impl Row<2> for (u32, u32) {
    fn to_words(&self) -> [u32; 2] {
        [self.0, self.1]
    }

    fn of_words([first, second]: [u32; 2]) -> (u32, u32) {
        (first, second)
    }
}

/// Lists of rows, each word with its lowest byte first.
pub(crate) mod rows {
    use crate::encoding::Row;
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<const N: usize, T: Row<N>, S: Serializer>(
        all: &[T],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = all.iter().flat_map(Row::to_words).flat_map(u32::to_le_bytes).collect();
        program::as_bytes::serialize(&bytes, to)
    }

    pub(crate) fn deserialize<'de, const N: usize, T: Row<N>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        let bytes = program::as_bytes::deserialize(from)?;
        let (words, rest) = bytes.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
        if !rest.is_empty() || !words.len().is_multiple_of(N) {
            return Err(D::Error::custom("a list ends within a row"));
        }
        let n = words.len() / N;
        let row = |_| T::of_words(std::array::from_fn(|_| words.next().expect("as many as there are")));
        Ok((0..n).map(row).collect())
    }
}

/// Lists of patches: of each its address, its length, what was there, and what is there now.
pub(crate) mod patches {
    use crate::patch::Patch;
    use program::Va;
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(all: &[Patch], to: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::with_capacity(all.iter().map(|patch| 12 + 2 * patch.old.len()).sum());
        for Patch { at, old, new } in all {
            bytes.extend(at.0.to_le_bytes());
            let len =
                u32::try_from(old.len()).map_err(|_| serde::ser::Error::custom("a patch is too long"))?;
            bytes.extend(len.to_le_bytes());
            bytes.extend_from_slice(old);
            bytes.extend_from_slice(new);
        }
        program::as_bytes::serialize(&bytes, to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Patch>, D::Error> {
        let bytes = program::as_bytes::deserialize(from)?;
        let mut rest = &bytes[..];
        let mut all = Vec::new();
        while !rest.is_empty() {
            let patch = first(&mut rest).ok_or_else(|| D::Error::custom("a list ends within a patch"))?;
            all.push(patch);
        }
        Ok(all)
    }

    /// Takes the first one.
    fn first(rest: &mut &[u8]) -> Option<Patch> {
        let (at, behind) = rest.split_first_chunk()?;
        let (len, behind) = behind.split_first_chunk()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (old, behind) = behind.split_at_checked(len)?;
        let (new, behind) = behind.split_at_checked(len)?;
        *rest = behind;
        Some(Patch { at: Va(u64::from_le_bytes(*at)), old: old.into(), new: new.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::Patch;
    use program::Va;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    struct Lists {
        #[serde(with = "rows")]
        ones: Vec<u32>,
        #[serde(with = "rows")]
        twos: Vec<(u32, u32)>,
        #[serde(with = "patches")]
        patches: Vec<Patch>,
    }

    fn patch() -> impl Strategy<Value = Patch> {
        let bytes = proptest::collection::vec(any::<(u8, u8)>(), 0..20);
        (any::<u64>(), bytes).prop_map(|(at, bytes)| Patch {
            at: Va(at),
            old: bytes.iter().map(|byte| byte.0).collect(),
            new: bytes.iter().map(|byte| byte.1).collect(),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            ones in proptest::collection::vec(any::<u32>(), 0..9),
            twos in proptest::collection::vec(any::<(u32, u32)>(), 0..9),
            patches in proptest::collection::vec(patch(), 0..9),
        ) {
            let lists = Lists { ones, twos, patches };
            let bytes = postcard::to_stdvec(&lists).expect("it can be written");
            prop_assert_eq!(postcard::from_bytes::<Lists>(&bytes), Ok(lists));
        }

        #[test]
        fn what_is_damaged_is_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _read = postcard::from_bytes::<Lists>(&bytes);
        }
    }

    #[test]
    fn words_stand_with_their_lowest_byte_first() {
        let lists = Lists { ones: vec![0x0102_0304], twos: vec![(5, 6)], patches: Vec::new() };
        let want = [4, 4, 3, 2, 1, 8, 5, 0, 0, 0, 6, 0, 0, 0, 0];
        assert_eq!(postcard::to_stdvec(&lists).expect("it can be written"), want);
        // Two words and a half are no pairs.
        assert!(postcard::from_bytes::<Lists>(&[0, 4, 1, 0, 0, 0, 0]).is_err());
        assert!(postcard::from_bytes::<Lists>(&[3, 1, 0, 0, 0, 0]).is_err());
    }
}

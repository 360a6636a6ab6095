//! What is pretended: the words of the variable `PRETEND`.

use std::{env, process, sync::OnceLock};

/// What an adapter is to have at most, and when it fails; `None` where it stays what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// `shared=BYTES` of shared memory in a group.
    pub shared: Option<u32>,
    /// `invocations=N` in a group, which bounds its sides too.
    pub invocations: Option<u32>,
    /// `groups=N` in a dimension of a dispatch.
    pub groups: Option<u32>,
    /// `buffers=N` of storage that a kernel can see.
    pub buffers: Option<u32>,
    /// `binding=BYTES` of a buffer that a kernel can see.
    pub binding: Option<u32>,
    /// `buffer=BYTES` in one buffer.
    pub buffer: Option<u64>,
    /// `memory=BYTES` that can be allocated together; also what the heaps are said to hold.
    pub memory: Option<u64>,
    /// `taken=N`: from the N-th submission on another program has taken all memory that is left.
    pub taken: Option<u64>,
    /// `subgroups=off`.
    pub no_subgroups: bool,
    /// `subgroup=UNITS` that it is said to have, for kernels whose units do not look at each other.
    pub subgroup: Option<u32>,
    /// `float16=off`.
    pub no_float16: bool,
    /// `atomics=off`: none of floats.
    pub no_float_atomics: bool,
    /// `wide=off`: no numbers of 64 bits.
    pub no_wide_numbers: bool,
    /// `kind=card`: no software.
    pub card: bool,
    /// `lost=N`: from the N-th submission on the device is lost.
    pub lost: Option<u64>,
    /// `refused=WORD`: a pipeline whose kernel has this word in its name.
    pub refused: Option<String>,
    /// `times=FILE`: how many seconds the driver took so far, to compile and in all.
    pub times: Option<String>,
}

impl Wish {
    /// What `PRETEND` says; ends the process where it makes no sense.
    pub fn get() -> &'static Self {
        static WISH: OnceLock<Wish> = OnceLock::new();
        WISH.get_or_init(|| {
            Self::parse(&env::var("PRETEND").unwrap_or_default()).unwrap_or_else(|problem| {
                eprintln!("PRETEND: {problem}");
                process::exit(2);
            })
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut wish = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: no value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word}: no number"));
            let small = || number()?.try_into().map_err(|_| format!("{word}: too large"));
            let off = || if value == "off" { Ok(true) } else { Err(format!("{word}: write off")) };
            match name {
                "shared" => wish.shared = Some(small()?),
                "invocations" => wish.invocations = Some(small()?),
                "groups" => wish.groups = Some(small()?),
                "buffers" => wish.buffers = Some(small()?),
                "binding" => wish.binding = Some(small()?),
                "buffer" => wish.buffer = Some(number()?),
                "memory" => wish.memory = Some(number()?),
                "taken" => wish.taken = Some(number()?),
                "subgroups" => wish.no_subgroups = off()?,
                "subgroup" => wish.subgroup = Some(small()?),
                "float16" => wish.no_float16 = off()?,
                "atomics" => wish.no_float_atomics = off()?,
                "wide" => wish.no_wide_numbers = off()?,
                "kind" if value == "card" => wish.card = true,
                "lost" => wish.lost = Some(number()?),
                "refused" => wish.refused = Some(value.to_owned()),
                "times" => wish.times = Some(value.to_owned()),
                _ => return Err(format!("{word}: unknown")),
            }
        }
        Ok(wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_refused() {
        let wish = Wish::parse("shared=16384,subgroups=off,refused=gelu").unwrap();
        let want = Wish { shared: Some(16384), no_subgroups: true, refused: Some("gelu".into()), ..Wish::default() };
        assert_eq!(wish, want);
        for wrong in ["shared", "shared=much", "shared=99999999999", "subgroups=on", "colour=red"] {
            assert!(Wish::parse(wrong).is_err(), "{wrong}");
        }
    }
}

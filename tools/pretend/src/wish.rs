//! The options in the environment variable `PRETEND`.

use std::{env, path::PathBuf, process, sync::OnceLock};

/// The limits to report and the failures to simulate; `None` changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// `shared=BYTES`: shared memory of a workgroup.
    pub shared: Option<u32>,
    /// `invocations=N`: invocations in a workgroup; also limits each of its dimensions.
    pub invocations: Option<u32>,
    /// `groups=N`: workgroups in each dimension of a dispatch.
    pub groups: Option<u32>,
    /// `buffers=N`: storage buffers of a kernel.
    pub buffers: Option<u32>,
    /// `binding=BYTES`: range of a buffer that a kernel can access.
    pub binding: Option<u32>,
    /// `buffer=BYTES`: size of a buffer.
    pub buffer: Option<u64>,
    /// `memory=BYTES`: total of all allocations, and the reported heap sizes.
    pub memory: Option<u64>,
    /// `taken=N`: allocations fail from the N-th submission on, as if another program used the
    /// rest.
    pub taken: Option<u64>,
    /// `subgroups=off`: no subgroup operations.
    pub no_subgroups: bool,
    /// `subgroup=UNITS`: reported subgroup size, for kernels without subgroup operations.
    pub subgroup: Option<u32>,
    /// `float16=off`: no float16.
    pub no_float16: bool,
    /// `atomics=off`: no atomics on floats.
    pub no_float_atomics: bool,
    /// `wide=off`: no 64-bit numbers.
    pub no_wide_numbers: bool,
    /// `kind=card`: reports a discrete GPU.
    pub card: bool,
    /// `lost=N`: the device is lost from the N-th submission on.
    pub lost: Option<u64>,
    /// `after=FILE`: submissions count only once this file exists.
    pub after: Option<PathBuf>,
    /// `refused=WORD`: refuses pipelines of kernels with this word in their names.
    pub refused: Option<String>,
    /// `times=FILE`: writes the seconds spent in the driver so far, for compiling and in total.
    pub times: Option<String>,
}

impl Wish {
    /// The options of `PRETEND`; ends the process if they are invalid.
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
                "after" => wish.after = Some(value.into()),
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
        let wish = Wish::parse("shared=16384,subgroups=off,refused=gelu,after=a/b").unwrap();
        let want = Wish {
            shared: Some(16384),
            no_subgroups: true,
            refused: Some("gelu".into()),
            after: Some("a/b".into()),
            ..Wish::default()
        };
        assert_eq!(wish, want);
        for wrong in ["shared", "shared=much", "shared=99999999999", "subgroups=on", "colour=red"] {
            assert!(Wish::parse(wrong).is_err(), "{wrong}");
        }
    }
}

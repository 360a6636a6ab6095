//! Extracts the kernels from the runtime's log.

/// The name and the WGSL source of every kernel.
pub fn kernels(log: &str) -> impl Iterator<Item = (&str, &str)> {
    let sources = log.split("```wgsl\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    sources.filter_map(|source| Some((name(source)?, source)))
}

/// The name of the entry point: the function marked `@compute`.
fn name(source: &str) -> Option<&str> {
    let kernel = source.split("@compute").nth(1)?;
    kernel.split("fn ").nth(1)?.split('(').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_with_their_names() {
        let one = "fn help() {}\n@compute @workgroup_size(64, 1, 1)\nfn add_f32(@builtin(x) y: u32) {\n}";
        let log = format!("[START]\nname: a\nsource:\n```wgsl\n{one}\n```\n[END]\nsource:\n```cpp\nint x;\n```\n");
        assert_eq!(kernels(&log).collect::<Vec<_>>(), [("add_f32", one)]);
    }
}

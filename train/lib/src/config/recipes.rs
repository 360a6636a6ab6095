//! The shipped recipes, which are compiled in.

use std::path::Path;

/// The configuration of `cargo train`: the built-in stories on a CPU.
pub const DEFAULT: &str = include_str!("../../../../configs/stories-cpu.toml");

/// The shipped recipes, so that they are at hand where the repository is not.
const SHIPPED: [(&str, &str); 5] = [
    ("stories-cpu", DEFAULT),
    ("shakespeare-char", include_str!("../../../../configs/shakespeare-char.toml")),
    ("shakespeare-char-cpu", include_str!("../../../../configs/shakespeare-char-cpu.toml")),
    ("shakespeare-char-llama-cpu", include_str!("../../../../configs/shakespeare-char-llama-cpu.toml")),
    ("gpt2-124m", include_str!("../../../../configs/gpt2-124m.toml")),
];

/// The shipped recipe a path names: `shakespeare-char`, or its file in `configs/`.
pub fn shipped(path: &Path) -> Option<&'static str> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_ours = folder.as_os_str().is_empty() || folder.ends_with("configs");
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".toml").unwrap_or(name);
    SHIPPED.iter().find(|(shipped, _)| is_ours && *shipped == name).map(|(_, text)| *text)
}

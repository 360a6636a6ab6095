//! Names of this program's flags in other programs.

/// Our flags, and their names in nanoGPT, llama.cpp, ollama and the APIs where these are not
/// similar enough to be suggested anyway.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("--from", &["--checkpoint", "--ckpt", "--model", "--model-path", "--out-dir", "-m"]),
    (
        "--max-new-tokens",
        &["--length", "--max-length", "--max-tokens", "--n-predict", "--num-predict", "--predict", "-n"],
    ),
    ("--new-tokens", &["--max-new-tokens", "--max-tokens", "--n-gen", "--n-predict", "-n"]),
    ("--num-return-sequences", &["--best-of", "--num-samples", "--samples"]),
    ("--repetition-penalty", &["--repeat-penalty"]),
    ("--seed", &["-s"]),
    ("--strategy sample", &["--do-sample"]),
    ("--strategy greedy", &["--greedy"]),
    ("PROMPT", TEXTS),
    ("TEXT", TEXTS),
];

/// Other programs' flags for our positional arguments.
const TEXTS: &[&str] = &["--input", "--prompt", "--start", "--text", "-p"];

/// Suggestions for an unknown flag; an underscore counts as a hyphen.
pub fn meant(flag: &str) -> Vec<String> {
    let flag = flag.replace('_', "-");
    let ours = ELSEWHERE.iter().filter(|(_, others)| others.contains(&flag.as_str()));
    ours.map(|(ours, _)| (*ours).to_owned()).collect()
}

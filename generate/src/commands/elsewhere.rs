//! What other programs call the flags of this one.

/// Our flags, and what nanoGPT, llama.cpp, ollama and the APIs call them where the likeness does not
/// tell.
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

/// Flags for what our commands take without one.
const TEXTS: &[&str] = &["--input", "--prompt", "--start", "--text", "-p"];

/// What a flag that there is not may be meant as; an underscore is a hyphen.
pub fn meant(flag: &str) -> Vec<String> {
    let flag = flag.replace('_', "-");
    let ours = ELSEWHERE.iter().filter(|(_, others)| others.contains(&flag.as_str()));
    ours.map(|(ours, _)| (*ours).to_owned()).collect()
}

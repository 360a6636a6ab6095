//! Measures training speed, and knows the peak speed of common GPUs.

use std::time::Instant;

use crate::config::Precision;

/// Speed since the last report, and since this session began; also as the utilisation of the
/// device, if its peak is known.
pub struct Speedometer {
    /// The device's peak FLOP/s, if known.
    peak_flops: Option<f64>,
    /// When this session began, and the tokens trained on by then.
    began: (Instant, u64),
    /// The same for the last report.
    last: (Instant, u64),
    /// Seconds of earlier sessions.
    before_s: f64,
}

impl Speedometer {
    /// Starts measuring, after earlier sessions trained on `tokens` in `before_s` seconds.
    /// `peak_flops` is the device's, if known, for the utilisation.
    pub fn new(tokens: u64, before_s: f64, peak_flops: Option<f64>) -> Self {
        let now = (Instant::now(), tokens);
        Self { peak_flops, began: now, last: now, before_s }
    }

    /// Seconds over all sessions.
    pub fn elapsed_s(&self) -> f64 {
        self.before_s + self.began.0.elapsed().as_secs_f64()
    }

    /// Tokens per second since the last call.
    pub fn since_last(&mut self, tokens: u64) -> f64 {
        let now = (Instant::now(), tokens);
        rate(std::mem::replace(&mut self.last, now), now)
    }

    /// Tokens per second of this session, including evaluations and saves.
    pub fn overall(&self, tokens: u64) -> f64 {
        rate(self.began, (Instant::now(), tokens))
    }

    /// The model FLOP utilisation at this speed, of `devices` equal devices; `None` if their peak
    /// is unknown.
    pub fn utilisation(&self, tokens_per_s: f64, flops_per_token: f64, devices: usize) -> Option<f64> {
        self.peak_flops.map(|peak| tokens_per_s * flops_per_token / (peak * devices as f64))
    }
}

/// Tokens per second between two times.
fn rate((began, before): (Instant, u64), (ended, after): (Instant, u64)) -> f64 {
    (after - before) as f64 / (ended - began).as_secs_f64().max(1e-9)
}

/// GPUs with their peak teraFLOP/s from the vendors' data sheets: in float32 without tensor cores,
/// and of the tensor cores in bfloat16 and float16, without sparsity. The first entry whose words
/// are in a device's name counts, so more specific names come first.
const GPUS: &[(&str, f64, Option<f64>)] = &[
    ("H200", 67.0, Some(989.0)),
    ("H100 PCIe", 51.0, Some(756.0)),
    ("H100", 67.0, Some(989.0)),
    ("A100", 19.5, Some(312.0)),
    ("A10G", 31.2, None),
    ("L40S", 91.6, Some(362.0)),
    ("L4", 30.3, Some(121.0)),
    ("T4", 8.1, None),
    ("V100", 15.7, None),
    ("RTX 5090", 104.8, None),
    ("RTX 4090", 82.6, Some(165.2)),
    ("RTX 4080", 48.7, None),
    ("RTX 3090", 35.6, Some(71.0)),
    ("RTX 3080", 29.8, None),
    ("RTX 3060", 12.7, None),
];

/// Words behind a GPU's name that make it another, slower or faster one.
const VARIANTS: [&str; 6] = ["Ti", "SUPER", "Laptop", "Max", "NVL", "D"];

fn words(name: &str) -> Vec<&str> {
    name.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect()
}

/// Whether a device's name has the words of `known` one after the other, and is no variant of it.
fn is_called(name: &str, known: &str) -> bool {
    let (name, known) = (words(name), words(known));
    let is_variant = |next: Option<&&str>| next.is_some_and(|next| VARIANTS.contains(next));
    (0..name.len()).any(|at| name[at..].starts_with(&known) && !is_variant(name.get(at + known.len())))
}

/// Peak FLOP/s of the GPU called `name`, in the type of the matrix products: the reference for the
/// model FLOP utilisation. `None` for an unknown device.
pub fn peak_flops(name: &str, precision: Precision) -> Option<f64> {
    let (_, float32, half) = GPUS.iter().find(|(known, ..)| is_called(name, known))?;
    let tera = match precision {
        Precision::F32 => Some(*float32),
        Precision::Bf16 | Precision::F16 => *half,
    };
    tera.map(|tera| tera * 1e12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specific_name_wins_and_the_unknown_has_none() {
        let float32_flops = |name| peak_flops(name, Precision::F32);
        assert_eq!(float32_flops("NVIDIA H200"), Some(67e12));
        assert_eq!(float32_flops("NVIDIA H100 PCIe"), Some(51e12));
        assert_eq!(float32_flops("NVIDIA L40S"), Some(91.6e12));
        assert_eq!(peak_flops("NVIDIA H200", Precision::Bf16), Some(989e12));
        assert_eq!(float32_flops("NVIDIA A100-SXM4-80GB"), Some(19.5e12));
        assert_eq!(float32_flops("NVIDIA GeForce RTX 4090"), Some(82.6e12));
        for unknown in ["the processor, 2 threads", "NVIDIA L40", "NVIDIA RTX A1000", "NVIDIA T400", "NVIDIA H100 NVL"]
        {
            assert_eq!(float32_flops(unknown), None, "{unknown}");
        }
        for variant in ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3080 Ti"] {
            assert_eq!(float32_flops(variant), None, "{variant}");
        }
    }
}

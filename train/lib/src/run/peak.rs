//! The arithmetic peak of devices we know, so that a rate can be shown as a share of what is
//! possible.

use crate::config::Precision;

/// Peak FLOP/s of the GPU that calls itself `name`, in the type that the products are computed in:
/// what a run's utilisation is a share of. `None` for a device we do not know.
pub fn flops(name: &str, precision: Precision) -> Option<f64> {
    match precision {
        Precision::F32 => float32_flops(name),
        Precision::Bf16 | Precision::F16 => half_flops(name),
    }
}

/// Peak FLOP/s of the tensor cores in bfloat16 and float16, by NVIDIA's data sheets, without
/// sparsity.
fn half_flops(name: &str) -> Option<f64> {
    const TERA: f64 = 1e12;
    const GPUS: &[(&str, f64)] = &[
        ("H200", 989.0 * TERA),
        ("H100 PCIe", 756.0 * TERA),
        ("H100", 989.0 * TERA),
        ("A100", 312.0 * TERA),
        ("L40S", 362.0 * TERA),
        ("L4", 121.0 * TERA),
        ("RTX 4090", 165.2 * TERA),
        ("RTX 3090", 71.0 * TERA),
    ];
    GPUS.iter().find(|(known, _)| name.contains(known)).map(|(_, flops)| *flops)
}

/// Peak float32 FLOP/s, by the vendors' data sheets (without tensor cores), of the GPU that calls
/// itself `name`. `None` for a device we do not know.
pub fn float32_flops(name: &str) -> Option<f64> {
    const TERA: f64 = 1e12;
    // More specific names first: the first that `name` contains counts.
    const GPUS: &[(&str, f64)] = &[
        ("H200", 67.0 * TERA),
        ("H100 PCIe", 51.0 * TERA),
        ("H100", 67.0 * TERA),
        ("A100", 19.5 * TERA),
        ("A10G", 31.2 * TERA),
        ("L40S", 91.6 * TERA),
        ("L4", 30.3 * TERA),
        ("T4", 8.1 * TERA),
        ("V100", 15.7 * TERA),
        ("RTX 5090", 104.8 * TERA),
        ("RTX 4090", 82.6 * TERA),
        ("RTX 4080", 48.7 * TERA),
        ("RTX 3090", 35.6 * TERA),
        ("RTX 3080", 29.8 * TERA),
        ("RTX 3060", 12.7 * TERA),
    ];
    GPUS.iter().find(|(known, _)| name.contains(known)).map(|(_, flops)| *flops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specific_name_wins_and_the_unknown_has_none() {
        assert_eq!(float32_flops("NVIDIA H200"), Some(67e12));
        assert_eq!(float32_flops("NVIDIA H100 PCIe"), Some(51e12));
        assert_eq!(float32_flops("NVIDIA L40S"), Some(91.6e12));
        assert_eq!(flops("NVIDIA H200", Precision::Bf16), Some(989e12));
        assert_eq!(float32_flops("the processor, 2 threads"), None);
    }
}

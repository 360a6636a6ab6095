//! How this process was started: alone, or by `mpirun` with others. Read from environment
//! variables, before MPI is initialised.

use std::num::NonZero;

use ember_model::device::{self, DeviceChoice};

/// The launchers' variables: rank, number of processes, and both on this machine. Open MPI's names,
/// then those of MPICH and Intel MPI.
const NAMES: [[&str; 4]; 2] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
];

/// The rank in a process started over PMIx, as Slurm's `srun` may do. PMIx has no variable for the
/// number of processes.
const PMIX_RANK: &str = "PMIX_RANK";

/// Slurm's variables for the step that `srun` started; a shell in an allocation counts as one
/// process. They are used only together with PMIx: `sbatch` sets some for the single process of its
/// script too.
const OF_SLURM: [&str; 4] = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"];

/// This process's rank among several that were started together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its number among all processes, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// Its number on this machine, from 0.
    pub local_rank: usize,
    /// Number of processes on this machine.
    pub local_size: usize,
}

impl Launch {
    /// The launch of this process; `None` if it was started alone.
    pub fn of_this_process() -> Option<Self> {
        Self::read(environment).filter(|launch| launch.size > 1)
    }

    /// Reads the launcher's variables, also those of a single process.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.parse::<usize>().ok();
        let of_slurm = number(PMIX_RANK).map(|_| OF_SLURM);
        let mut known = NAMES.into_iter().chain(of_slurm);
        let [rank, size, local_rank, local_size] = known.find(|names| number(names[1]).is_some())?;
        let (rank, size) = (number(rank)?, number(size)?);
        // Without local variables, assume that all processes are on one machine.
        let local_size = number(local_size).filter(|&processes| processes > 0).unwrap_or(size);
        let local_rank = number(local_rank).unwrap_or(rank);
        Some(Self { rank, size, local_rank, local_size })
    }
}

/// The rank of this process if a launcher started it and the number of processes is unknown.
pub fn rank_without_size() -> Option<usize> {
    read_rank_without_size(environment)
}

fn read_rank_without_size(variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let rank = variable(PMIX_RANK)?.parse().ok()?;
    Launch::read(variable).is_none().then_some(rank)
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// CPU threads of this process if the user sets no number; `None` lets the thread pool use all
/// cores.
pub fn threads() -> Option<u32> {
    let launch = Launch::of_this_process()?;
    let allowed = std::thread::available_parallelism().map_or(1, NonZero::get);
    // A launcher that binds processes to cores has already divided them.
    let share = if is_bound() { allowed } else { allowed / launch.local_size };
    Some(share.clamp(1, 1024) as u32)
}

/// Whether the launcher bound this process to fewer cores than its own.
fn is_bound() -> bool {
    #[cfg(target_os = "linux")]
    {
        let cores = |process: String| {
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
            let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"))?;
            Some(mask.chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum::<u32>())
        };
        match (cores("self".to_owned()), cores(std::os::unix::process::parent_id().to_string())) {
            (Some(own), Some(launcher)) => own < launcher,
            _ => false,
        }
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// The device of this process: several processes on a machine with several GPUs use one GPU each.
pub fn device(choice: DeviceChoice) -> DeviceChoice {
    Launch::of_this_process().map_or(choice, |launch| spread(choice, launch.local_rank, device::cuda_count()))
}

fn spread(choice: DeviceChoice, local_rank: usize, gpus: usize) -> DeviceChoice {
    match choice {
        DeviceChoice::Auto | DeviceChoice::Cuda(None) if gpus > 1 => DeviceChoice::Cuda(Some(local_rank % gpus)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks variables up in this list.
    fn lookup(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    }

    fn read(variables: &[(&str, &str)]) -> Option<Launch> {
        Launch::read(lookup(variables))
    }

    #[test]
    fn the_launchers_variables_are_read() {
        assert_eq!(read(&[]), None);
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ];
        assert_eq!(read(&open_mpi), Some(Launch { rank: 5, size: 8, local_rank: 1, local_size: 4 }));
        let mpich = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        assert_eq!(read(&mpich), Some(Launch { rank: 1, size: 2, local_rank: 1, local_size: 2 }));
        let nobody_here = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "0")];
        assert_eq!(read(&nobody_here), read(&mpich));
        // A launch of one process.
        let alone = read(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]);
        assert_eq!(alone.map(|launch| launch.size), Some(1));
    }

    #[test]
    fn processes_that_slurm_started_by_pmix_know_each_other_or_are_refused() {
        let slurm = [
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NTASKS_PER_NODE", "4"),
        ];
        // The script of an `sbatch` job is a single process.
        assert_eq!((read(&slurm), read_rank_without_size(lookup(&slurm))), (None, None));
        let by_pmix = [&[("PMIX_RANK", "5")][..], &slurm].concat();
        let launch = Launch { rank: 5, size: 8, local_rank: 1, local_size: 4 };
        assert_eq!((read(&by_pmix), read_rank_without_size(lookup(&by_pmix))), (Some(launch), None));
        assert_eq!(read_rank_without_size(lookup(&by_pmix[..2])), Some(5), "of how many?");
        // Open MPI's mpirun sets PMIx's rank, too.
        let open_mpi = [("PMIX_RANK", "0"), ("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")];
        assert_eq!(read_rank_without_size(lookup(&open_mpi)), None);
    }

    #[test]
    fn each_process_of_a_machine_takes_its_own_gpu() {
        use DeviceChoice::{Auto, Cpu, Cuda};
        assert_eq!(spread(Auto, 1, 4), Cuda(Some(1)));
        assert_eq!(spread(Cuda(None), 5, 4), Cuda(Some(1)));
        assert_eq!(spread(Auto, 1, 1), Auto);
        assert_eq!(spread(Cuda(Some(2)), 1, 4), Cuda(Some(2)));
        assert_eq!(spread(Cpu, 1, 4), Cpu);
    }
}

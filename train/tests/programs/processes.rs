//! A program built without MPI as one of several processes under `mpirun`; `tools/check-mpi` checks
//! programs built with it.

use super::{Place, Ran, small_run};

/// Runs the program with the environment that `mpirun` gives to this rank of two.
fn launched(place: &Place, rank: &str, arguments: &str) -> Ran {
    let mut command = place.command("ember-train", arguments);
    command.env("OMPI_COMM_WORLD_RANK", rank).env("OMPI_COMM_WORLD_SIZE", "2");
    Ran::from(command.output().unwrap())
}

#[test]
fn a_program_without_mpi_refuses_to_be_one_of_several_in_one_line() {
    let place = Place::new();
    let arguments = small_run(&place, "runs/count", 5);
    let first = launched(&place, "0", &arguments);
    assert_eq!(first.code, Some(2));
    assert_eq!(first.err.lines().count(), 1, "{}", first.err);
    assert!(first.err.contains("built without MPI") && first.err.contains("--features mpi"), "{}", first.err);
    // Other ranks leave the error message to rank 0.
    let second = launched(&place, "1", &arguments);
    assert_eq!((second.code, second.err.as_str()), (Some(2), ""));
    assert!(!place.path("runs").exists(), "a run was begun");
    let resumed = launched(&place, "0", "resume runs/count");
    assert_eq!(resumed.code, Some(2));
    assert!(resumed.err.contains("built without MPI"), "{}", resumed.err);
}

#[test]
fn processes_that_cannot_tell_how_many_they_are_refuse_in_one_line() {
    let place = Place::new();
    let arguments = small_run(&place, "runs/count", 5);
    for (rank, lines) in [("0", 1), ("1", 0)] {
        let mut command = place.command("ember-train", &arguments);
        let ran = Ran::from(command.env("PMIX_RANK", rank).env_remove("SLURM_STEP_NUM_TASKS").output().unwrap());
        assert_eq!((ran.code, ran.err.lines().count()), (Some(2), lines), "{}", ran.err);
        assert!(rank != "0" || ran.err.contains("; start it with mpirun"), "{}", ran.err);
    }
    assert!(!place.path("runs").exists(), "a run was begun");
}

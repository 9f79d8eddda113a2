# Sourced by the scripts beside it: runs their steps, each with its time.

# No test may be skipped because a machine of CI lacks one of these.
export KVBENCH_REQUIRE=netns,pidns,mount,cuda-double,cuda-vmm,nvml,rdma,vm

names=() times=()

# step COMMAND...: runs it and ends the script if it fails.
step() {
	local begin=$SECONDS status=0
	echo
	echo "== $*"
	"$@" || status=$?
	names+=("$*$([ $status = 0 ] || echo "  FAILED, exit status $status")")
	times+=($((SECONDS - begin)))
	echo "-- $((SECONDS - begin)) s: $*"
	[ $status = 0 ] || exit $status
}

# table: the seconds of each step, whether the script has passed or failed.
table() {
	local i
	echo
	echo "seconds  step"
	for i in "${!names[@]}"; do printf '%7d  %s\n' "${times[i]}" "${names[i]}"; done
	printf '%7d  total\n' "$SECONDS"
}
trap table EXIT

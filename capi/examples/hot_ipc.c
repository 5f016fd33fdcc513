// PADRONE's figure 5: a process that runs is sampled, its hot function found, and its calls measured.
// cc -I capi/include capi/examples/hot_ipc.c -L target/release -lengraft -o hot_ipc
#include <engraft.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    engraft_process *process;
    engraft_profile *profile;
    engraft_function *hot;
    engraft_cfg *cfg;
    engraft_calls *calls;
    if (engraft_open(argc > 1 ? atoi(argv[1]) : 0, NULL, &process)
        || engraft_profile_take(process, 1000, 1000, &profile)
        || engraft_function_at(process, engraft_profile_most_frequent(profile), &hot)
        || engraft_cfg_build(hot, &cfg)
        || engraft_calls_measure(hot, 10, 30000, &calls))
        return fprintf(stderr, "%s\n", engraft_last_error()), EXIT_FAILURE;
    printf("number of samples: %lu\n", engraft_profile_n_samples(profile));
    printf("most frequent ip = %#lx\n", engraft_profile_most_frequent(profile));
    printf("function address = %#lx (%s)\n", engraft_function_address(hot), engraft_function_name(hot));
    printf("%zu blocks, %zu loops\n", engraft_cfg_n_blocks(cfg), engraft_cfg_n_loops(cfg));
    for (size_t n = 0; n < engraft_calls_n(calls); n++)
        printf("%s: ipc = %f\n", engraft_function_name(hot), engraft_calls_ipc(calls, n));
    engraft_close(process); // The rest goes when the program ends.
}

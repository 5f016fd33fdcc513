// PADRONE's figure 7: the hot function of a process that runs, `vecadd.c`, is replaced by code of ours.
// cc -I capi/include capi/examples/replace_hot.c -L target/release -lengraft -o replace_hot
#include <engraft.h>
#include <stdio.h>
#include <stdlib.h>

// vecadd(a, b, c, n) for AVX, from the last four elements to the first:
// vmovupd -32(%rdi,%rcx,8),%ymm0; vaddpd -32(%rsi,%rcx,8),%ymm0,%ymm0; vmovupd %ymm0,-32(%rdx,%rcx,8);
// sub $4,%rcx; jg; vzeroupper; ret.
static const uint8_t avx[] = {0xc5, 0xfd, 0x10, 0x44, 0xcf, 0xe0, 0xc5, 0xfd, 0x58, 0x44, 0xce, 0xe0, 0xc5, 0xfd,
    0x11, 0x44, 0xca, 0xe0, 0x48, 0x83, 0xe9, 0x04, 0x7f, 0xe8, 0xc5, 0xf8, 0x77, 0xc3};

int main(int argc, char **argv) {
    engraft_process *process;
    engraft_profile *profile;
    engraft_function *hot;
    engraft_code *code;
    if (engraft_open(argc > 1 ? atoi(argv[1]) : 0, NULL, &process)
        || engraft_profile_take(process, 1000, 1000, &profile)
        || engraft_function_at(process, engraft_profile_most_frequent(profile), &hot)
        || engraft_code_of_bytes(avx, sizeof avx, &code)
        || engraft_replace(hot, code, NULL))
        return fprintf(stderr, "%s\n", engraft_last_error()), EXIT_FAILURE;
    printf("%s is replaced\n", engraft_function_name(hot));
    engraft_code_free(code), engraft_function_free(hot), engraft_profile_free(profile);
    engraft_close(process);
}

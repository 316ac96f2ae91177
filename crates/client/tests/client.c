/* Uses libbraid on the directory that is named: prints what it finds, and fails if that is
 * not as it has to be. */
#define _POSIX_C_SOURCE 200809L
#include <braid.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct braid_values *values;
static struct braid_error error;

static void need(int is, const char *what) {
    if (!is) {
        fprintf(stderr, "%s: %d %s\n", what, error.number, error.text);
        exit(1);
    }
}

static struct braid_bytes of(const char *text) {
    struct braid_bytes bytes = {text, strlen(text)};
    return bytes;
}

static int print(void *context, struct braid_bytes key, struct braid_bytes value) {
    int *left = context;
    printf("%.*s=%.*s\n", (int)key.len, (const char *)key.data, (int)value.len, (const char *)value.data);
    return --*left == 0;
}

static void *put_many(void *thread) {
    for (int number = 0; number < 100; number++) {
        char key[32];
        snprintf(key, sizeof key, "many-%s-%03d", (const char *)thread, number);
        if (braid_put(values, of(key), of(key), BRAID_ALWAYS, 0600, NULL) != 1)
            return "put";
    }
    return NULL;
}

/* Values that nobody takes are no memory that nobody frees. */
static void nothing_leaks(void) {
    static char mebibyte[1 << 20];
    struct braid_bytes large = {mebibyte, sizeof mebibyte};
    need(braid_put(values, of("large"), large, BRAID_ALWAYS, 0600, &error) == 1, "put a large value");
    size_t least = SIZE_MAX, most = 0;
    for (int turn = 0; turn < 64; turn++) {
        need(braid_get(values, of("large"), NULL, &error) == 1, "get without a place");
        struct mallinfo2 info = mallinfo2();
        size_t used = info.hblkhd + info.uordblks;
        least = used < least ? used : least;
        most = used > most ? used : most;
    }
    need(most - least < 16 * sizeof mebibyte, "what is allocated grows");
    need(braid_delete(values, of("large"), &error) == 1, "delete the large value");
}

/* A child has no part in what its parent opened, and closes nothing of it. */
static void a_child_has_no_part(void) {
    pid_t child = fork();
    if (child == 0) {
        int got = braid_get(values, of("a"), NULL, &error);
        braid_close(values);
        _exit(got == -1 && error.number == 9 && strstr(error.text, "fork") ? 0 : 1);
    }
    int status;
    need(waitpid(child, &status, 0) == child && status == 0, "a child");
    need(braid_put(values, of("after"), of("fork"), BRAID_ALWAYS, 0600, &error) == 1, "put after a fork");
    need(braid_delete(values, of("after"), &error) == 1, "delete after a fork");
}

int main(int count, char **words) {
    need(count == 2, "one directory");
    if (braid_open(words[1], &values, &error) != 0) {
        printf("refused: %d %s\n", error.number, error.text);
        return 2;
    }
    need(braid_put(values, of("a"), of("one"), BRAID_IF_ABSENT, 0640, &error) == 1, "put");
    need(braid_put(values, of("a"), of("two"), BRAID_IF_ABSENT, 0640, &error) == 0, "put if absent");
    need(braid_put(values, of("b"), of("two"), BRAID_IF_PRESENT, 0640, &error) == 0, "put if present");
    struct braid_bytes binary = {"b\0/%", 4}, value;
    need(braid_put(values, binary, of(""), BRAID_ALWAYS, 0600, &error) == 1, "put a binary key");
    need(braid_get(values, binary, &value, &error) == 1 && value.len == 0, "get an empty value");
    braid_free(value);
    need(braid_get(values, of("a"), &value, &error) == 1, "get");
    need(value.len == 3 && memcmp(value.data, "one", 3) == 0, "the value");
    braid_free(value);
    need(braid_get(values, of("none"), &value, &error) == 0, "get nothing");
    braid_free(value);
    need(braid_get(values, of(""), &value, NULL) == 0, "the empty key");
    braid_free(value);
    need(braid_put(values, of("a"), of("x"), 7, 0600, &error) == -1 && error.number == 22, "a wrong 'when'");
    char long_key[300] = {0};
    struct braid_bytes too_long = {long_key, sizeof long_key};
    value = binary;
    need(braid_get(values, too_long, &value, &error) == -1 && error.number == 36, "a long key");
    need(value.data == NULL && value.len == 0, "no value after a failure");
    braid_free(value);
    uint64_t len = 7;
    need(braid_len(values, of("a"), &len, &error) == 1 && len == 3, "len");
    need(braid_len(values, of("none"), &len, &error) == 0 && len == 0, "len of nothing");
    need(braid_len(values, of("a"), NULL, &error) == 1, "whether it is there");
    need(braid_len(values, too_long, &len, &error) == -1, "len of a long key");
    nothing_leaks();
    pthread_t threads[2];
    const char *names[2] = {"x", "y"};
    for (int thread = 0; thread < 2; thread++)
        pthread_create(&threads[thread], NULL, put_many, (void *)names[thread]);
    for (int thread = 0; thread < 2; thread++) {
        void *failed;
        pthread_join(threads[thread], &failed);
        need(failed == NULL, "a thread");
    }
    int left = 3;
    struct braid_bytes after = of("many-x-097");
    need(braid_scan(values, of("many-"), &after, 1, print, &left, &error) == 0 && left == 0, "scan");
    struct braid_bytes page;
    need(braid_page(values, of("many-x-"), NULL, 1, 60, &page, &error) == 1, "page");
    need(page.len == 60 * (8 + 10 + 8 + 10) && memcmp((char *)page.data + 8, "many-x-000", 10) == 0, "its bytes");
    memcpy(&len, page.data, sizeof len);
    need(len == 10, "the length of a key");
    braid_free(page);
    need(braid_page(values, of("many-x-"), &after, 0, 60, &page, &error) == 0, "the last page");
    need(page.len == 2 * (8 + 10 + 8), "two keys");
    braid_free(page);
    need(braid_delete(values, binary, &error) == 1, "delete");
    need(braid_delete(values, binary, &error) == 0, "delete again");
    a_child_has_no_part();
    need(braid_sync(values, &error) == 0, "sync");
    braid_close(values);
    braid_close(NULL);
    return 0;
}

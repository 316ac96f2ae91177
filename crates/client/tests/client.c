/* Uses libbraid on the directory that is named: prints what it finds, and fails if that is
 * not as it has to be. */
#include <braid.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    need(braid_delete(values, binary, &error) == 1, "delete");
    need(braid_delete(values, binary, &error) == 0, "delete again");
    need(braid_sync(values, &error) == 0, "sync");
    braid_close(values);
    braid_close(NULL);
    return 0;
}

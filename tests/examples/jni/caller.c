/* Stands for a Java machine: arrays are structures of the test, and exceptions are counted. */
#include <jni.h>
#include <stdio.h>
#include <string.h>

typedef struct array {
    jsize length;
    const void *data;
} array;

static int thrown;

static jclass find_class(JNIEnv *env, const char *name) {
    (void)env;
    return (jclass)(intptr_t)name;
}

static jint throw_new(JNIEnv *env, jclass kind, const char *message) {
    (void)env, (void)kind;
    printf("thrown: %s\n", message);
    return thrown++;
}

static const char *chars_of(JNIEnv *env, jstring text, jboolean *copied) {
    (void)env, (void)copied;
    return text;
}

static void release(JNIEnv *env, jstring text, const char *chars) {
    (void)env, (void)text, (void)chars;
}

static jsize length_of(JNIEnv *env, jobject object) {
    (void)env;
    return ((const array *)object)->length;
}

static void copy_floats(JNIEnv *env, jfloatArray from, jsize at, jsize n, jfloat *to) {
    (void)env;
    memcpy(to, (const jfloat *)((const array *)from)->data + at, (size_t)n * sizeof *to);
}

static void copy_longs(JNIEnv *env, jlongArray from, jsize at, jsize n, jlong *to) {
    (void)env;
    memcpy(to, (const jlong *)((const array *)from)->data + at, (size_t)n * sizeof *to);
}

jlong Java_org_example_Session_open(JNIEnv *env, jclass type, jstring weights, jint threads);
jfloat Java_org_example_Session_trainStep(JNIEnv *env, jclass type, jlong session, jfloatArray x,
                                          jlongArray target, jfloat rate);
void Java_org_example_Session_save(JNIEnv *env, jclass type, jlong session, jstring checkpoint);
void Java_org_example_Session_close(JNIEnv *env, jclass type, jlong session);

int main(int count, char **arguments) {
    static const struct JNINativeInterface table = {find_class, throw_new,   chars_of,  release,
                                                    length_of,  copy_floats, copy_longs};
    JNIEnv env = &table;
    static jfloat x[8 * 64];
    static const jlong target[8] = {0, 1, 0, 1, 0, 1, 0, 1};
    array images = {8 * 64, x}, labels = {8, target}, few = {3, x};
    for (int i = 0; i < 8 * 64; i++) {
        x[i] = (jfloat)(i * 37 % 101) / 101.0f;
    }
    if (count != 3 || Java_org_example_Session_open(&env, NULL, "/nonexistent", 1) != 0) {
        return 2;
    }
    const jlong session = Java_org_example_Session_open(&env, NULL, arguments[1], 1);
    Java_org_example_Session_trainStep(&env, NULL, session, &few, &labels, 0.1f);
    if (!session || thrown != 2) {
        return 3;
    }
    jfloat first = 0, last = 0;
    for (int i = 0; i < 30; i++) {
        last = Java_org_example_Session_trainStep(&env, NULL, session, &images, &labels, 0.1f);
        first = i ? first : last;
    }
    Java_org_example_Session_save(&env, NULL, session, arguments[2]);
    Java_org_example_Session_close(&env, NULL, session);
    printf("loss %.4f, then %.4f\n", (double)first, (double)last);
    return last < first && thrown == 2 ? 0 : 4;
}

/* A session for Java or Kotlin on Android. Built by the NDK with add_subdirectory of the artifact's
 * code/, which makes the target pockengine::digits:
 *
 *     package org.example;
 *     final class Session implements AutoCloseable {
 *         static { System.loadLibrary("session_jni"); }
 *         static native long open(String weights, int threads);
 *         static native float trainStep(long session, float[] x, long[] target, float rate);
 *         static native void save(long session, String checkpoint);
 *         static native void close(long session);
 *     }
 *
 * Failures are thrown as IllegalStateException. One thread uses a session at a time.
 */
#include <jni.h>

#include "pe_host.h"
#include "pe_program_digits.h"
#include "pe_train.h"

static void throw_state(JNIEnv *env, const char *message) {
    jclass kind = (*env)->FindClass(env, "java/lang/IllegalStateException");
    if (kind) {
        (*env)->ThrowNew(env, kind, message);
    }
}

static pe_session *session_of(jlong handle) { return (pe_session *)(intptr_t)handle; }

JNIEXPORT jlong JNICALL Java_org_example_Session_open(JNIEnv *env, jclass type, jstring weights,
                                                      jint threads) {
    char message[PE_MESSAGE_BYTES];
    const char *path = (*env)->GetStringUTFChars(env, weights, NULL);
    (void)type;
    if (!path) {
        return 0; /* Java's own exception is on its way */
    }
    pe_session *session = pe_open(&pe_program_digits, threads, message);
    if (!session) {
        throw_state(env, message);
    } else if (pe_load_weights(session, path) != PE_OK) {
        throw_state(env, pe_message(session));
        pe_shut(session);
        session = NULL;
    }
    (*env)->ReleaseStringUTFChars(env, weights, path);
    return (jlong)(intptr_t)session;
}

/* Whether the arrays have the sizes of the program's inputs; throws otherwise. */
static jboolean fit(JNIEnv *env, const pe_entry *train, jfloatArray x, jlongArray target) {
    const pe_tensor *images = &train->inputs[PE_DIGITS_TRAIN_INPUT_X];
    const pe_tensor *labels = &train->inputs[PE_DIGITS_TRAIN_INPUT_TARGET];
    const size_t image_bytes = (size_t)(*env)->GetArrayLength(env, x) * sizeof(jfloat);
    const size_t label_bytes = (size_t)(*env)->GetArrayLength(env, target) * sizeof(jlong);
    if (image_bytes != pe_tensor_bytes(images) || label_bytes != pe_tensor_bytes(labels)) {
        throw_state(env, "x or target is not of the program's size");
        return JNI_FALSE;
    }
    return JNI_TRUE;
}

JNIEXPORT jfloat JNICALL Java_org_example_Session_trainStep(JNIEnv *env, jclass type, jlong handle,
                                                            jfloatArray x, jlongArray target,
                                                            jfloat rate) {
    pe_session *session = session_of(handle);
    const pe_entry *train = pe_find_entry(session->program, "train");
    pe_event event;
    (void)type;
    if (!fit(env, train, x, target)) {
        return 0;
    }
    (*env)->GetFloatArrayRegion(
        env, x, 0, (*env)->GetArrayLength(env, x),
        (jfloat *)pe_tensor_data(session, &train->inputs[PE_DIGITS_TRAIN_INPUT_X]));
    (*env)->GetLongArrayRegion(
        env, target, 0, (*env)->GetArrayLength(env, target),
        (jlong *)pe_tensor_data(session, &train->inputs[PE_DIGITS_TRAIN_INPUT_TARGET]));
    session->schedule->rate = (double)rate;
    if (pe_train_next(session, &event) != PE_OK) {
        throw_state(env, pe_message(session));
        return 0;
    }
    return event.loss;
}

JNIEXPORT void JNICALL Java_org_example_Session_save(JNIEnv *env, jclass type, jlong handle,
                                                     jstring checkpoint) {
    const char *path = (*env)->GetStringUTFChars(env, checkpoint, NULL);
    (void)type;
    if (path) {
        if (pe_save_checkpoint(session_of(handle), path, PE_TRAINED) != PE_OK) {
            throw_state(env, pe_message(session_of(handle)));
        }
        (*env)->ReleaseStringUTFChars(env, checkpoint, path);
    }
}

JNIEXPORT void JNICALL Java_org_example_Session_close(JNIEnv *env, jclass type, jlong handle) {
    (void)env, (void)type;
    pe_shut(session_of(handle));
}

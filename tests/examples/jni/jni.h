/* The part of the Java Native Interface that examples/android uses, for tests without an NDK. */
#ifndef JNI_H
#define JNI_H

#include <stddef.h>
#include <stdint.h>

#define JNIEXPORT __attribute__((visibility("default")))
#define JNICALL
#define JNI_TRUE 1
#define JNI_FALSE 0

typedef int32_t jint;
typedef int32_t jsize;
typedef int64_t jlong;
typedef float jfloat;
typedef uint8_t jboolean;
typedef void *jobject;
typedef jobject jclass, jstring, jfloatArray, jlongArray;

typedef const struct JNINativeInterface *JNIEnv;

struct JNINativeInterface {
    jclass (*FindClass)(JNIEnv *env, const char *name);
    jint (*ThrowNew)(JNIEnv *env, jclass kind, const char *message);
    const char *(*GetStringUTFChars)(JNIEnv *env, jstring text, jboolean *copied);
    void (*ReleaseStringUTFChars)(JNIEnv *env, jstring text, const char *chars);
    jsize (*GetArrayLength)(JNIEnv *env, jobject array);
    void (*GetFloatArrayRegion)(JNIEnv *env, jfloatArray array, jsize at, jsize n, jfloat *to);
    void (*GetLongArrayRegion)(JNIEnv *env, jlongArray array, jsize at, jsize n, jlong *to);
};

#endif

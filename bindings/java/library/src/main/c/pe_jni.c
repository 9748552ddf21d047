/* Programs for Java: the native methods of pockengine.Natives, over pe_host.h and pe_train.h.
 *
 * PE_JNI_PROGRAMS names the programs that the library is linked with: PE_JNI(digits)PE_JNI(words).
 * Java has checked what comes here: sessions are open and used by one call at a time, buffers are
 * direct and of their tensors' sizes. Texts are bytes that end with a zero. After a failure Java's
 * exception is pending, and no function of JNI is called but those that allow it.
 */
#include <jni.h>
#include <stdlib.h>
#include <string.h>

#include "pe_host.h"
#include "pe_train.h"

#define PE_NATIVE(type, name) JNIEXPORT type JNICALL Java_pockengine_Natives_##name

#define PE_JNI(name) extern const pe_program pe_program_##name;
PE_JNI_PROGRAMS
#undef PE_JNI
#define PE_JNI(name) &pe_program_##name,
static const pe_program *const programs[] = {PE_JNI_PROGRAMS};
#undef PE_JNI

enum { INPUTS, OUTPUTS, PARAMS };

static jclass natives;
static jmethodID fail_method, read_method, event_method;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *machine, void *reserved) {
    JNIEnv *env;
    (void)reserved;
    if ((*machine)->GetEnv(machine, (void **)&env, JNI_VERSION_1_6) != JNI_OK) {
        return JNI_ERR;
    }
    jclass found = (*env)->FindClass(env, "pockengine/Natives");
    jclass trainer = found ? (*env)->FindClass(env, "pockengine/Trainer") : NULL;
    if (!trainer) {
        return JNI_ERR;
    }
    natives = (*env)->NewGlobalRef(env, found);
    fail_method = (*env)->GetStaticMethodID(env, found, "fail", "(I[B)V");
    read_method = (*env)->GetMethodID(env, trainer, "read", "(J)V");
    event_method = (*env)->GetMethodID(env, trainer, "event", "(IJ[FJ[B[B)Z");
    return natives && fail_method && read_method && event_method ? JNI_VERSION_1_6 : JNI_ERR;
}

static jbyteArray bytes_of(JNIEnv *env, const char *text) {
    const jsize length = text ? (jsize)strlen(text) : 0;
    jbyteArray bytes = text ? (*env)->NewByteArray(env, length) : NULL;
    if (bytes) {
        (*env)->SetByteArrayRegion(env, bytes, 0, length, (const jbyte *)text);
    }
    return bytes;
}

/* Throws the exception of a status, unless one is pending. */
static void check(JNIEnv *env, pe_status status, const char *message) {
    if (status != PE_OK && !(*env)->ExceptionCheck(env)) {
        jbyteArray text = bytes_of(env, message);
        if (text) {
            (*env)->CallStaticVoidMethod(env, natives, fail_method, (jint)status, text);
        }
    }
}

static pe_session *session_of(jlong handle) { return (pe_session *)(intptr_t)handle; }

static const pe_program *program_of(jint number) {
    const jint count = (jint)(sizeof programs / sizeof *programs);
    return number >= 0 && number < count ? programs[number] : NULL;
}

/* One of a program's tensors, or NULL after the last. */
static const pe_tensor *tensor_of(jint number, jint entry, jint kind, jint index) {
    const pe_program *program = program_of(number);
    if (kind == PARAMS) {
        return index < program->param_count ? &program->params[index] : NULL;
    }
    const pe_entry *found = &program->entries[entry];
    const int count = kind == INPUTS ? found->input_count : found->output_count;
    return index < count ? &(kind == INPUTS ? found->inputs : found->outputs)[index] : NULL;
}

PE_NATIVE(jbyteArray, programName)(JNIEnv *env, jclass type, jint program) {
    (void)type;
    const pe_program *found = program_of(program);
    return bytes_of(env, found ? found->name : NULL);
}

PE_NATIVE(jbyteArray, entryName)(JNIEnv *env, jclass type, jint program, jint entry) {
    (void)type;
    const pe_program *found = program_of(program);
    return bytes_of(env, entry < found->entry_count ? found->entries[entry].name : NULL);
}

PE_NATIVE(jbyteArray, tensorName)
(JNIEnv *env, jclass type, jint program, jint entry, jint kind, jint index) {
    (void)type;
    const pe_tensor *tensor = tensor_of(program, entry, kind, index);
    return bytes_of(env, tensor ? tensor->name : NULL);
}

PE_NATIVE(jlongArray, tensor)
(JNIEnv *env, jclass type, jint program, jint entry, jint kind, jint index) {
    (void)type;
    const pe_tensor *tensor = tensor_of(program, entry, kind, index);
    jlong numbers[3 + PE_MAX_RANK] = {(jlong)tensor->dtype, (jlong)tensor->flags,
                                      (jlong)pe_tensor_bytes(tensor)};
    for (int i = 0; i < tensor->rank; i++) {
        numbers[3 + i] = (jlong)tensor->shape[i];
    }
    jlongArray found = (*env)->NewLongArray(env, 3 + tensor->rank);
    if (found) {
        (*env)->SetLongArrayRegion(env, found, 0, 3 + tensor->rank, numbers);
    }
    return found;
}

PE_NATIVE(jlong, open)(JNIEnv *env, jclass type, jint program, jint threads) {
    char message[PE_MESSAGE_BYTES] = "";
    (void)type;
    pe_session *session = pe_open(program_of(program), threads, message);
    check(env, session ? PE_OK : PE_ERROR_ARGUMENT, message);
    return (jlong)(intptr_t)session;
}

PE_NATIVE(void, close)(JNIEnv *env, jclass type, jlong handle) {
    (void)env, (void)type;
    pe_shut(session_of(handle));
}

/* Calls a function that takes a session, a text and a number. */
static void with_text(JNIEnv *env, jlong handle, jbyteArray text, int number,
                      pe_status (*call)(pe_session *session, const char *text, int number)) {
    jbyte *bytes = (*env)->GetByteArrayElements(env, text, NULL);
    if (bytes) {
        const pe_status status = call(session_of(handle), (const char *)bytes, number);
        (*env)->ReleaseByteArrayElements(env, text, bytes, JNI_ABORT);
        check(env, status, pe_message(session_of(handle)));
    }
}

static pe_status load_file(pe_session *session, const char *path, int number) {
    (void)number;
    return pe_load_weights(session, path);
}

static pe_status save_file(pe_session *session, const char *path, int whole) {
    return pe_save_checkpoint(session, path, whole ? PE_WHOLE : PE_TRAINED);
}

static pe_status export_file(pe_session *session, const char *path, int all) {
    return pe_export_weights(session, path, all != 0);
}

PE_NATIVE(void, load)(JNIEnv *env, jclass type, jlong handle, jbyteArray path) {
    (void)type;
    with_text(env, handle, path, 0, load_file);
}

PE_NATIVE(void, save)
(JNIEnv *env, jclass type, jlong handle, jbyteArray path, jboolean whole) {
    (void)type;
    with_text(env, handle, path, whole, save_file);
}

PE_NATIVE(void, export)
(JNIEnv *env, jclass type, jlong handle, jbyteArray path, jboolean all) {
    (void)type;
    with_text(env, handle, path, all, export_file);
}

/* The addresses of direct buffers, NULL for those that are missing; to be freed. */
static void **addresses_of(JNIEnv *env, jobjectArray buffers) {
    const jsize count = (*env)->GetArrayLength(env, buffers);
    void **found = calloc((size_t)count + 1, sizeof *found);
    for (jsize i = 0; found && i < count; i++) {
        jobject buffer = (*env)->GetObjectArrayElement(env, buffers, i);
        if (buffer) {
            found[i] = (*env)->GetDirectBufferAddress(env, buffer);
            (*env)->DeleteLocalRef(env, buffer);
        }
    }
    return found;
}

PE_NATIVE(void, run)
(JNIEnv *env, jclass type, jlong handle, jbyteArray entry, jobjectArray inputs,
 jobjectArray outputs) {
    (void)type;
    pe_session *session = session_of(handle);
    void **in = addresses_of(env, inputs), **out = addresses_of(env, outputs);
    jbyte *name = in && out ? (*env)->GetByteArrayElements(env, entry, NULL) : NULL;
    if (name) {
        const pe_entry *found = pe_find_entry(session->program, (const char *)name);
        const pe_status status = pe_run(session, found, (const void *const *)in, out);
        (*env)->ReleaseByteArrayElements(env, entry, name, JNI_ABORT);
        check(env, status, pe_message(session));
    }
    free(in);
    free(out);
}

/* Copies a param to or from a direct buffer. */
static void copy_param(JNIEnv *env, jlong handle, jbyteArray name, jobject data, bool set) {
    pe_session *session = session_of(handle);
    void *place = (*env)->GetDirectBufferAddress(env, data);
    const size_t bytes = (size_t)(*env)->GetDirectBufferCapacity(env, data);
    jbyte *text = (*env)->GetByteArrayElements(env, name, NULL);
    if (text) {
        const char *param = (const char *)text;
        const pe_status status = set ? pe_set_param(session, param, place, bytes)
                                     : pe_get_param(session, param, place, bytes);
        (*env)->ReleaseByteArrayElements(env, name, text, JNI_ABORT);
        check(env, status, pe_message(session));
    }
}

PE_NATIVE(void, get)(JNIEnv *env, jclass type, jlong handle, jbyteArray name, jobject data) {
    (void)type;
    copy_param(env, handle, name, data, false);
}

PE_NATIVE(void, set)(JNIEnv *env, jclass type, jlong handle, jbyteArray name, jobject data) {
    (void)type;
    copy_param(env, handle, name, data, true);
}

PE_NATIVE(jlongArray, progress)(JNIEnv *env, jclass type, jlong handle) {
    (void)type;
    const pe_progress *progress = &session_of(handle)->progress;
    const jlong numbers[] = {(jlong)progress->steps, (jlong)progress->updates,
                             (jlong)progress->seed};
    jlongArray found = (*env)->NewLongArray(env, 3);
    if (found) {
        (*env)->SetLongArrayRegion(env, found, 0, 3, numbers);
    }
    return found;
}

PE_NATIVE(void, schedule)
(JNIEnv *env, jclass type, jlong handle, jdouble rate, jlongArray numbers, jlong seed,
 jboolean resumed) {
    (void)type;
    pe_session *session = session_of(handle);
    jlong values[3];
    (*env)->GetLongArrayRegion(env, numbers, 0, 3, values);
    if (!resumed || session->schedule->total == 0) { /* a checkpoint has no rate without a total */
        *session->schedule = (pe_schedule){.kind = (pe_schedule_kind)values[0],
                                           .rate = rate,
                                           .warmup = values[1],
                                           .total = values[2]};
    }
    if (!resumed) {
        session->progress.seed = (uint32_t)seed;
    }
}

/* A training's callbacks: the Java machine, the trainer, and the memory that it fills. */
typedef struct callbacks {
    JNIEnv *env;
    jobject trainer;
    void **buffers;
} callbacks;

static pe_status read_batch(void *context, pe_session *session, int64_t step) {
    const callbacks *java = context;
    JNIEnv *env = java->env;
    (*env)->CallVoidMethod(env, java->trainer, read_method, (jlong)step);
    if ((*env)->ExceptionCheck(env)) {
        return pe_fail(session->message, PE_ERROR_SYSTEM, "the data of step %lld failed",
                       (long long)step);
    }
    const pe_entry *train = pe_find_variant(session->program, "train", session->size);
    for (int i = 0; i < train->input_count; i++) {
        if (java->buffers[i]) {
            const pe_tensor *input = &train->inputs[i];
            memcpy(pe_tensor_data(session, input), java->buffers[i], pe_tensor_bytes(input));
        }
    }
    return PE_OK;
}

static bool notify(void *context, const pe_event *event) {
    const callbacks *java = context;
    JNIEnv *env = java->env;
    const jfloat numbers[] = {event->loss, event->rate};
    if ((*env)->ExceptionCheck(env) || (*env)->PushLocalFrame(env, 4) != 0) {
        return false;
    }
    jfloatArray floats = (*env)->NewFloatArray(env, 2);
    jboolean going_on = JNI_FALSE;
    if (floats) {
        (*env)->SetFloatArrayRegion(env, floats, 0, 2, numbers);
        going_on = (*env)->CallBooleanMethod(
            env, java->trainer, event_method, (jint)event->kind, (jlong)event->step, floats,
            (jlong)event->ns, bytes_of(env, event->path), bytes_of(env, event->message));
    }
    (*env)->PopLocalFrame(env, NULL);
    return going_on && !(*env)->ExceptionCheck(env);
}

PE_NATIVE(jboolean, resume)
(JNIEnv *env, jclass type, jlong handle, jbyteArray place, jint keep) {
    (void)type;
    pe_session *session = session_of(handle);
    bool found = false;
    jbyte *path = (*env)->GetByteArrayElements(env, place, NULL);
    if (path) {
        const pe_training training = {.place = {(const char *)path, PE_TRAINED, keep}};
        const pe_status status = pe_resume(session, &training, &found);
        (*env)->ReleaseByteArrayElements(env, place, path, JNI_ABORT);
        check(env, status, pe_message(session));
    }
    return found ? JNI_TRUE : JNI_FALSE;
}

PE_NATIVE(void, train)
(JNIEnv *env, jclass type, jlong handle, jobject trainer, jobjectArray inputs, jbyteArray place,
 jlongArray numbers, jboolean roll_back) {
    (void)type;
    pe_session *session = session_of(handle);
    callbacks java = {env, trainer, addresses_of(env, inputs)};
    jbyte *path = place ? (*env)->GetByteArrayElements(env, place, NULL) : NULL;
    jlong values[3];
    (*env)->GetLongArrayRegion(env, numbers, 0, 3, values);
    if (java.buffers && (path || !place)) {
        const pe_training training = {.read = read_batch,
                                      .notify = notify,
                                      .context = &java,
                                      .until = values[0],
                                      .place = {(const char *)path, PE_TRAINED, (int)values[2]},
                                      .save_every = values[1],
                                      .roll_back = roll_back};
        check(env, pe_train(session, &training), pe_message(session));
    }
    if (path) {
        (*env)->ReleaseByteArrayElements(env, place, path, JNI_ABORT);
    }
    free(java.buffers);
}

/* The functions of math.h that kernels may call, for compilers that come without a C library. A
 * program whose ops call one links a library that defines it. */
#ifndef PE_BARE_MATH_H
#define PE_BARE_MATH_H

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

double copysign(double size, double sign);
double erf(double x);
double erfc(double x);
double exp(double x);
double fabs(double x);
double floor(double x);
double fmax(double x, double y);
double fmin(double x, double y);
double fmod(double x, double y);
double log(double x);
double log1p(double x);
double pow(double x, double y);
double sin(double x);
double sqrt(double x);
double tan(double x);

float sinf(float x);
float cosf(float x);
float tanf(float x);
float asinf(float x);
float acosf(float x);
float atanf(float x);
float sinhf(float x);
float coshf(float x);
float erfcf(float x);
float expm1f(float x);
float log1pf(float x);
float floorf(float x);
float ceilf(float x);
float rintf(float x);
float truncf(float x);
float asinhf(float x);
float acoshf(float x);
float atanhf(float x);
float powf(float x, float y);
float atan2f(float y, float x);
float hypotf(float x, float y);
float fmodf(float x, float y);

/* Processors that round in hardware take no call for it; -ffreestanding would hide their meaning.
 */
#define floorf __builtin_floorf
#define ceilf __builtin_ceilf
#define rintf __builtin_rintf
#define truncf __builtin_truncf

#endif

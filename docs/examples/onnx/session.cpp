// Continues a sequence of tokens: session MODEL.onnx COUNT, with the ids of the prompt on standard input. Prints COUNT
// ids, each the likeliest. It needs ONNX Runtime's C header and library:
//
//     g++ -std=c++17 -I HEADERS session.cpp LIBRARIES/libonnxruntime.so -Wl,-rpath,LIBRARIES -o session

#include <onnxruntime_c_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

static const OrtApi* ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);

static void check(OrtStatus* status) {
    if (status == nullptr) return;
    std::fprintf(stderr, "session: %s\n", ort->GetErrorMessage(status));
    std::exit(1);
}

static OrtMemoryInfo* cpu() {
    OrtMemoryInfo* info;
    check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &info));
    return info;
}

// tensor wraps data, so data must outlive it.
template <typename T>
static OrtValue* tensor(std::vector<T>& data, std::vector<int64_t> shape, ONNXTensorElementDataType type) {
    static OrtMemoryInfo* info = cpu();
    OrtValue* value;
    check(ort->CreateTensorWithDataAsOrtValue(info, data.data(), data.size() * sizeof(T), shape.data(), shape.size(), type, &value));
    return value;
}

static OrtValue* integers(std::vector<int64_t>& data) {
    return tensor(data, {1, int64_t(data.size())}, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
}

int main(int argc, char** argv) {
    if (argc != 3) return std::fprintf(stderr, "usage: session MODEL.onnx COUNT < ids\n"), 2;
    OrtEnv* env;
    OrtSessionOptions* options;
    OrtSession* session;
    OrtAllocator* allocator;
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "session", &env));
    check(ort->CreateSessionOptions(&options));
    check(ort->CreateSession(env, argv[1], options, &session));
    check(ort->GetAllocatorWithDefaultOptions(&allocator));

    // The inputs past_key_values.N.key and .value begin with no tokens: [1, kv heads, 0, head size].
    std::vector<std::string> names{"input_ids", "attention_mask"}, results{"logits"};
    std::vector<OrtValue*> inputs(2), outputs;
    std::vector<float> nothing(1);
    size_t count;
    check(ort->SessionGetInputCount(session, &count));
    for (size_t i = 0; i < count; i++) {
        char* name;
        check(ort->SessionGetInputName(session, i, allocator, &name));
        if (std::string past = name; past.rfind("past_key_values", 0) == 0) {
            OrtTypeInfo* type;
            const OrtTensorTypeAndShapeInfo* info;
            std::vector<int64_t> shape(4);
            check(ort->SessionGetInputTypeInfo(session, i, &type));
            check(ort->CastTypeInfoToTensorInfo(type, &info));
            check(ort->GetDimensions(info, shape.data(), shape.size()));
            names.push_back(past);
            results.push_back("present" + past.substr(std::string("past_key_values").size()));
            inputs.push_back(tensor(nothing, {1, shape[1], 0, shape[3]}, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT));
            ort->ReleaseTypeInfo(type);
        }
        check(ort->AllocatorFree(allocator, name));
    }
    std::vector<const char*> in, out;
    for (auto& n : names) in.push_back(n.c_str());
    for (auto& n : results) out.push_back(n.c_str());

    std::vector<int64_t> ids{std::istream_iterator<int64_t>(std::cin), {}}, mask(ids.size(), 1);
    for (int left = std::atoi(argv[2]); left > 0; left--) {
        inputs[0] = integers(ids);
        inputs[1] = integers(mask);
        outputs.assign(out.size(), nullptr);
        check(ort->Run(session, nullptr, in.data(), inputs.data(), in.size(), out.data(), out.size(), outputs.data()));
        OrtTensorTypeAndShapeInfo* info;
        std::vector<int64_t> shape(3);
        float* logits;
        check(ort->GetTensorTypeAndShape(outputs[0], &info));
        check(ort->GetDimensions(info, shape.data(), shape.size()));
        check(ort->GetTensorMutableData(outputs[0], reinterpret_cast<void**>(&logits)));
        ort->ReleaseTensorTypeAndShapeInfo(info);
        const float* last = logits + (shape[1] - 1) * shape[2];
        ids = {std::max_element(last, last + shape[2]) - last};
        std::cout << ids[0] << (left > 1 ? ' ' : '\n') << std::flush;

        // What is present now is the past of the next run.
        mask.push_back(1);
        ort->ReleaseValue(outputs[0]);
        for (auto* value : inputs) ort->ReleaseValue(value);
        std::copy(outputs.begin() + 1, outputs.end(), inputs.begin() + 2);
    }
    std::for_each(inputs.begin() + 2, inputs.end(), ort->ReleaseValue);
    ort->ReleaseSession(session);
    ort->ReleaseSessionOptions(options);
    ort->ReleaseEnv(env);
}

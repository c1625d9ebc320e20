// Module: a piece of a model that owns parameters, buffers and other modules.
//
// It holds all three by position in lists, so a copy of a module is a separate module, in which
// parameters can be replaced one by one. That is how replicate() makes a replica whose parameters
// live on another device and remember their originals.
//
// A module of your own has its layers as members, and registers them:
//
//   class Model final : public nn::ModuleOf<Model> {
//    public:
//     Model() { register_child("fc", fc); }
//     Variable forward(const Variable& x) override { return fc(x); }
//
//    private:
//     nn::Linear fc{5, 2};  // 5 features in, 2 out
//   };
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "engine/autograd/ops/ops.h"

namespace lockstep::nn {

// Lives while the calling thread is inside a module. The input of the outermost module is the
// batch, for an observer.
class ForwardScope {
 public:
  ForwardScope() { ++depth_; }
  ~ForwardScope() { --depth_; }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;
  static bool is_outermost() { return depth_ == 1; }

 private:
  static inline thread_local std::size_t depth_ = 0;
};

using NamedParameter = std::pair<std::string, Variable>;
using NamedBuffer = std::pair<std::string, Tensor>;

class Module {
 public:
  virtual ~Module() = default;

  virtual Variable forward(const Variable& x) = 0;
  Variable operator()(const Variable& x);
  Variable operator()(const Tensor& x) { return (*this)(Variable(x)); }

  // --- around its forward pass ---
  // Called in place of every forward pass, which it makes itself. Copies are without it.
  using Around = std::function<Variable(const std::function<Variable()>& forward)>;
  void set_around(Around around) { around_ = std::move(around); }
  // A forward pass inside of what stands around it.
  template <typename Forward>
  Variable run_forward(const Forward& forward) const {
    return around_ ? around_(forward) : forward();
  }

  // --- parameters: trained by an optimizer ---
  // Depth first, in the order of registration. A parameter that is registered twice (shared by two
  // layers) is listed once, under its first name.
  std::vector<Variable> parameters() const;
  // Names are joined by dots: "0.weight"; with a prefix "module", "module.0.weight".
  std::vector<NamedParameter> named_parameters(std::string_view prefix = {}) const;
  std::size_t num_parameters() const;  // elements of all of them, without padding

  // Replaces the parameters by other variables, in the order of parameters(). They may be results
  // of operations; then gradients flow through them.
  // Throws Error{Usage} unless there are as many, Error{State} if one is undefined; set_buffers()
  // does the same.
  void set_parameters(const std::vector<Variable>& values);

  // Forgets all gradients.
  void zero_grad();

  // --- buffers: state that is not trained (running statistics) ---
  std::vector<Tensor> buffers() const;
  std::vector<NamedBuffer> named_buffers(std::string_view prefix = {}) const;
  void set_buffers(const std::vector<Tensor>& values);

  // --- children ---
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const {
    return children_;
  }
  const std::vector<NamedParameter>& own_parameters() const { return parameters_; }
  // The value of an own parameter without its padding, in the same memory; state dicts hold this.
  Tensor unpadded(std::size_t parameter) const;
  const std::vector<NamedBuffer>& own_buffers() const { return buffers_; }

  // --- training or evaluation, which Dropout and BatchNorm distinguish ---
  void train() { set_mode(Mode::train); }
  void eval() { set_mode(Mode::eval); }
  bool is_training() const { return mode_ == Mode::train; }

  // --- place and type ---
  // Both replace the tensors inside the same variables, gradients included, so that handles held
  // elsewhere (by an optimizer) stay valid. A dtype applies only to floating tensors.
  // Throws Error{DType} for a dtype that is not floating.
  void to(Device device);
  void to(DType dtype);

  // --- copies ---
  // A separate module that shares all parameters and buffers with this one until they are replaced.
  // Other members are copied.
  virtual std::shared_ptr<Module> shallow_copy() const = 0;
  // A separate module with values of its own and no gradients: copy.deepcopy. A C++ copy (Net b =
  // a) shares them.
  std::shared_ptr<Module> clone() const;
  // The same on a device; on its own one, values and buffers are shared.
  std::shared_ptr<Module> copy_on(Device device) const;
  // Bytes of the whole object, members of the derived class included.
  virtual std::size_t object_bytes() const { return sizeof(Module); }

  // --- text, exactly as PyTorch prints it ---
  virtual std::string type_name() const = 0;             // "Linear"
  virtual std::string extra_text() const { return {}; }  // "in_features=10, out_features=1, ..."
  std::string to_string() const;

 protected:
  Module() = default;
  Module(const Module& other);
  Module& operator=(const Module&) = delete;

  // Each returns the position of the entry in own_parameters() and so on.
  // Throws Error{Usage} for a name that is taken, empty, or contains a dot, Error{State} for an
  // undefined tensor.
  // padding: rows at the parameter's end that exist only in memory, where they make products
  // faster.
  std::size_t register_parameter(std::string name, Tensor value, std::size_t padding = 0);
  std::size_t register_buffer(std::string name, Tensor value);
  std::size_t register_child(std::string name, std::shared_ptr<Module> child);
  // The same for a layer that is a member of this module. A copy registers its own member.
  // Also throws Error{Usage} if the layer is not a member.
  std::size_t register_child(std::string name, Module& member);

  void copy_children();  // each child becomes a shallow copy of itself
  // Throws Error{State} unless this object's class is `type`: a class that derives from another
  // module without ModuleOf would be copied as that one.
  void require_type(const std::type_info& type) const;

 private:
  enum class Mode { train, eval };
  struct Member {
    std::size_t child = 0;      // its position in children_
    std::ptrdiff_t offset = 0;  // bytes from this module
  };

  std::shared_ptr<Module> member_at(std::ptrdiff_t offset);
  void set_mode(Mode mode);
  void require_free_name(const std::string& name) const;
  // Calls visit(prefix, module) for this module and all modules below it, depth first.
  template <typename Self, typename Visit>
  static void walk(Self& self, const std::string& prefix, const Visit& visit);

  std::vector<NamedParameter> parameters_;
  std::vector<std::size_t> paddings_;  // each parameter's rows of padding
  std::vector<NamedBuffer> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::vector<Member> members_;  // the children that this module does not own
  Mode mode_ = Mode::train;
  Around around_;
};

// "Model" for a class lockstep::Model.
std::string class_name(const std::type_info& type);

// Base of every concrete module: class Linear : public ModuleOf<Linear>. Code that several of them
// share can stand in a Base between the two.
template <typename Derived, typename Base = Module>
class ModuleOf : public Base {
 public:
  using Base::Base;
  std::shared_ptr<Module> shallow_copy() const override {
    static_assert(std::is_copy_constructible_v<Derived>,
                  "a module must be copyable: hold layers as members or by shared_ptr");
    this->require_type(typeid(Derived));
    auto copy = std::make_shared<Derived>(static_cast<const Derived&>(*this));
    static_cast<ModuleOf&>(*copy).copy_children();
    return copy;
  }
  std::size_t object_bytes() const override { return sizeof(Derived); }
  std::string type_name() const override { return class_name(typeid(Derived)); }
};

// A number as Python prints it, for printed modules: 0.5 -> "0.5", 1 -> "1.0", 1e-5 -> "1e-05".
std::string python_number(double value);

}  // namespace lockstep::nn
